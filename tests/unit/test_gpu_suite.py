"""What the suite for a GPU says of its steps; the steps themselves need one."""

from tests import gpu_suite

REPORT = """<testsuites><testsuite>
<testcase classname="test_x" name="test_passed" time="0.1"/>
<testcase classname="test_x" name="test_failed" time="0.1"><failure message="assert 0">of the log</failure></testcase>
<testcase classname="test_x" name="test_skipped" time="0.1"><skipped message="needs two devices"/></testcase>
<testcase time="0.1"/>
</testsuite></testsuites>"""


def test_a_test_that_was_interrupted_has_not_passed(tmp_path):
    report = tmp_path / "step.xml"
    report.write_text(REPORT)
    assert gpu_suite.outcomes(report) == {
        "passed": 1,
        "failed": ["test_x::test_failed"],
        "skipped": {"needs two devices": 1},
    }
