// SPDX-License-Identifier: Apache-2.0
// report_page JSON PAGE   writes the report of a JSON file, for the test with a browser.
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>

#include "apps/compare/report_html.h"

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: report_page JSON PAGE\n";
    return EXIT_FAILURE;
  }
  std::ifstream json(argv[1]);
  const std::string text{std::istreambuf_iterator<char>(json), {}};
  std::ofstream page(argv[2]);
  page << paceline::apps::report_html(text) << std::flush;
  if (!json || !page)
    std::cerr << "report_page: cannot copy " << argv[1] << " to " << argv[2] << '\n';
  return json && page ? EXIT_SUCCESS : EXIT_FAILURE;
}
