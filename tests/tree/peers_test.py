# SPDX-License-Identifier: Apache-2.0
"""What bench/peers does around its contestants: turns, ratios, and the end of ranks that fail or hang. No peer is needed."""
import argparse
import os
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../bench/peers"))
import compare_steps  # noqa: E402
import turns  # noqa: E402


def step_report(parameters=100, bytes_copied=50, **steps_and_overheads):
    rows = [{"mode": mode, "step_ms": {"median": step}, "overhead_ms": overhead, "bytes_in_place": 9950,
             "bytes_copied": bytes_copied} for mode, (step, overhead) in steps_and_overheads.items()]
    return {"model": "mlp", "parameters": parameters, "tensors": 8, "batch": 8, "link": "shm", "rows": rows}


RANK = "import json, os, signal, sys\nrank = int(sys.argv[1])\n"


class Ranks(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def script(self, program):
        path = os.path.join(self.folder.name, "rank.py")
        with open(path, "w", encoding="utf-8") as file:
            file.write(RANK + program)
        return path

    def run_ranks(self, program):
        return turns.run_torch_ranks(argparse.Namespace(limit=50), "DDP", self.script(program), 3, [])

    def error_of(self, program):
        with self.assertRaises(SystemExit) as caught:
            self.run_ranks(program)
        with self.assertRaises(ChildProcessError):  # nobody is left
            os.waitpid(-1, os.WNOHANG)
        return str(caught.exception)

    def test_rank_0_reports_on_its_last_line(self):
        self.assertEqual(self.run_ranks("print('hello'); print(json.dumps(rank + 7))"), 7)

    def test_the_rank_that_fails_is_named_and_the_others_are_stopped(self):
        error = self.error_of("signal.pause() if rank != 1 else sys.exit('no memory')")
        self.assertEqual(error, "DDP on 3 ranks: rank 1 failed (exit code 1):\nno memory")

    def test_a_rank_that_is_killed_is_named_with_the_signal(self):
        error = self.error_of("signal.pause() if rank != 2 else os.kill(os.getpid(), 9)")
        self.assertEqual(error, "DDP on 3 ranks: rank 2 was killed by SIGKILL:\n")

    def test_the_ranks_that_have_not_ended_at_the_limit_are_named(self):
        script = self.script("if rank == 1: os.kill(os.getpid(), signal.SIGSTOP)")
        ranks = [turns.Rank(r, script, [], self.folder.name) for r in range(3)]
        for rank in ranks:
            os.waitid(os.P_PID, rank.process.pid, os.WEXITED | os.WSTOPPED | os.WNOWAIT)
        error = turns.first_failure_of(ranks, 0.01)
        for rank in ranks:
            turns.end(rank.process)
        self.assertEqual(str(error), "rank 1 (stopped): not ended after 0.01 s (--limit), so stopped:\n")

    def test_a_program_that_fails_is_quoted(self):
        with self.assertRaises(SystemExit) as caught:
            turns.run("paceline", ["sh", "-c", "echo said; echo wrong >&2; exit 3"], 50)
        self.assertEqual(str(caught.exception), "paceline failed (exit code 3):\nsaid\nwrong")

    def test_a_program_that_hangs_is_stopped(self):
        with self.assertRaises(SystemExit) as caught:
            turns.run("paceline", ["sleep", "600"], 0.2)
        self.assertEqual(str(caught.exception), "paceline: not ended after 0.2 s (--limit), so stopped:\n")


class Steps(unittest.TestCase):
    def test_every_second_round_goes_the_other_way(self):
        contestants = {"ours": lambda: 1, "pytorch": lambda: 2}
        order = [[name for name, _ in turns.play_round(contestants, i, "")] for i in range(3)]
        self.assertEqual(order, [["ours", "pytorch"], ["pytorch", "ours"], ["ours", "pytorch"]])

    def test_models_that_differ_are_refused_with_both_counts(self):
        with self.assertRaises(SystemExit) as caught:
            compare_steps.check_same({"ours": [step_report()], "pytorch": [step_report(parameters=101)]})
        self.assertEqual(str(caught.exception),
                         "mlp is not the same on both sides: 100 parameters in paceline, 101 in PyTorch")

    def test_one_side_alone_agrees_with_itself(self):
        compare_steps.check_same({"ours": [], "pytorch": [step_report()]})

    def test_ratios_are_of_the_medians_over_rounds(self):
        ours = [step_report(local=(20, 0), ddp=(24, 4), shared=(15, -5)),
                step_report(local=(99, 0), ddp=(99, 9), shared=(99, 9), bytes_copied=10050),
                step_report(local=(10, 0), ddp=(12, 2), shared=(7, -3))]
        theirs = [step_report(local=(30, 0), ddp=(72, 40))]
        row = compare_steps.row_of({"ours": ours, "pytorch": theirs}, 2, "sgd")
        self.assertEqual(row["overhead_ratio"], 0.1)
        self.assertEqual(row["pytorch_ddp_over_ours"], 3)
        self.assertEqual(row["overhead_percent_of_local"], 20)
        self.assertEqual(row["overhead_us_per_tensor"], 500)
        self.assertEqual(row["shared_over_local"], 0.75)
        self.assertEqual(row["shared_over_pytorch_local"], 0.5)
        self.assertEqual(row["in_place_percent"], 49.75)  # the least

    def test_without_a_peer_its_columns_are_empty(self):
        row = compare_steps.row_of({"ours": [step_report(local=(20, 0), ddp=(25, 4))]}, 1, "sgd")
        cells = compare_steps.cells(row, compare_steps.COLUMNS).split()
        self.assertEqual(cells, ["20.00", "25.00", "-", "-", "-", "4.00", "-", "-", "-", "20.00", "500.00", "-", "-", "99.50"])

    def test_no_gain_is_read_from_a_peer_without_overhead(self):
        reports = {"ours": [step_report(local=(9, 0), ddp=(9, 1))], "pytorch": [step_report(local=(9, 0), ddp=(9, -1))]}
        self.assertIsNone(compare_steps.row_of(reports, 2, "sgd")["overhead_ratio"])


if __name__ == "__main__":
    unittest.main()
