"""The scripts of regression suites lead to the statements that they mean."""

from __future__ import annotations

from mysqltest_script import Runner


class Notes:
    """A server that notes what it is asked, and answers from a table."""

    def __init__(self, answers=None):
        self.asked = []
        self.answers = answers or {}

    def connect(self, name, schema):
        """Note a new connection."""
        self.asked.append(f"<{name} to {schema}>")

    def use(self, name):
        """Note the connection that follows."""
        self.asked.append(f"<{name}>")

    def disconnect(self, name):
        """Note a connection that ends."""
        self.asked.append(f"<no {name}>")

    def run(self, statement):
        """Note a statement."""
        self.asked.append(statement)

    def value(self, query, column="", row=1):
        """Answer from the table."""
        return self.answers.get((query, column, row), "")


def statements(tmp_path, script, answers=None, **others):
    """Run a script, with files that it may source; returns what it asked."""
    for name, text in others.items():
        (tmp_path / f"{name}.inc").write_text(text)
    path = tmp_path / "main.test"
    path.write_bytes(script.encode() if isinstance(script, str) else script)
    server = Notes(answers)
    Runner(server, [tmp_path]).run(path)
    return server.asked


def test_a_delimiter_ends_a_statement_only_outside_of_quotes(tmp_path):
    """Proves that quotes of all three kinds hide delimiters."""
    asked = statements(tmp_path, """a ';' b; c ";\\";" d; e `;\\` f;\ng ''';';""")
    assert asked == ["a ';' b", 'c ";\\";" d', "e `;\\` f", "g ''';'"]


def test_a_delimiter_that_is_set_counts_from_there(tmp_path):
    """Proves both spellings of the delimiter command, and the way back."""
    asked = statements(tmp_path, "a;\n--delimiter //\nb; c//\ndelimiter ;//\nd;e;")
    assert asked == ["a", "b; c", "d", "e"]


def test_comments_and_commands_that_judge_are_passed_over(tmp_path):
    """Proves that comments, expectations and output commands are no statements."""
    script = "# it's\n--error 1\na;\n-- b;\n--echo c;\necho d;\n--sorted_result\ne;\n"
    assert statements(tmp_path, script) == ["a", "e"]


def test_texts_for_other_programs_are_passed_over(tmp_path):
    """Proves that perl and written files end where their mark says."""
    script = "perl;\nx;\nEOF\na;\n--write_file f END_OF\ny;\nEOF\nEND_OF\nb;\n"
    assert statements(tmp_path, script) == ["a", "b"]


def test_variables_are_put_into_what_evaluates_them(tmp_path):
    """Proves substitution by eval alone, and that the longest name wins."""
    script = "let $a= 1;\nlet $ab= 'two';\neval x $a $ab ${a}b $abc $no;\ny $a;\n"
    assert statements(tmp_path, script) == ["x 1 two 1b twoc ", "y $a"]


def test_queries_give_values(tmp_path):
    """Proves backquotes, columns and rows of results."""
    answers = {("q 1", "", 1): "v", ("s", "C", 2): "w"}
    script = "let $n= 1;let $a= `q $n`;let $b= query_get_value(s, C, 2);eval $a $b;"
    assert statements(tmp_path, script, answers) == ["v w"]


def test_loops_and_conditions(tmp_path):
    """Proves nested blocks, counting, negation and comparison."""
    script = """
    let $i= 3;
    while ($i) {
      if ($i == 2)
      {
        eval two $i;
      }
      if (!$x) { eval each $i; }
      if ($i > 5) { never; }
      dec $i;
    }
    """
    asked = statements(tmp_path, script)
    assert asked == ["each 3", "two 2", "each 2", "each 1"]


def test_a_loop_that_never_ends_is_left(tmp_path):
    """Proves that an endless loop does not keep the script from ending."""
    asked = statements(tmp_path, "while (1)\n{\na;\n}\nb;")
    assert asked[-1] == "b"


def test_files_are_sourced_from_the_roots(tmp_path):
    """Proves that sourced files share variables, and that missing ones are skipped."""
    script = "let $t= 1;\n--source part.inc\nsource nowhere.inc;\nb;"
    assert statements(tmp_path, script, part="eval a $t;") == ["a 1", "b"]


def test_a_file_that_sources_itself_ends(tmp_path):
    """Proves that a depth is the end of recursion."""
    asked = statements(tmp_path, "--source me.inc\n", me="a;\n--source me.inc\n")
    assert set(asked) == {"a"}


def test_several_connections(tmp_path):
    """Proves that connections are opened, chosen and closed."""
    script = "connect (c1,localhost,root,,db);\na;\nconnection default;\ndisconnect c1;"
    assert statements(tmp_path, script) == ["<c1 to db>", "a", "<default>", "<no c1>"]


def test_a_script_ends_where_it_says(tmp_path):
    """Proves that nothing after exit runs, from within a block either."""
    assert statements(tmp_path, "a;\nif (1) {\nexit;\n}\nb;") == ["a"]


def test_bytes_that_are_no_utf8_come_through(tmp_path):
    """Proves that statements keep their bytes, one for each character."""
    assert statements(tmp_path, b"a '\xe9\xff';") == ["a '\xe9\xff'"]
