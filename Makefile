# The few commands a person needs. Each is one script in tools/, so that CI and people run the same.
.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all clean

help:
	@tools/help.sh

setup:
	@tools/setup.sh

demo:
	@tools/demo.sh

test:
	@tools/test.sh

test-all:
	@tools/test.sh --all

clean:
	@rm -rf build
