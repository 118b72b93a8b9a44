package main

import (
	"bytes"
	"regexp"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestWorkItems(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		if err := run(t.Context(), &out); err != nil {
			t.Error(err)
		}
		for _, c := range []struct {
			line        string
			least, most int
		}{
			{`  job-\d: run-1 starts at step 1 of 8; earlier failures: 0`, 2, 3},
			{`  job-\d: released, [2-8] of 8 steps are done`, 2, 3},
			{`all of them were claimed again within \d+ms; the lease time is 2s`, 1, 1},
			{`  job-\d: run-2 starts at step [3-8] of 8; earlier failures: 0`, 2, 6},
			{`  job-4: failed under run-\d: a tool that the job needs`, 3, 3},
			{`  job-4: run-\d starts at step 1 of 8; earlier failures: 2`, 1, 1},
			{`  job-4: quarantined after 3 failures`, 1, 1},
			{`the supervisor has repaired the tool, and frees job-4`, 1, 1},
			{`  job-\d: done by run-\d`, 6, 6},
			{`all jobs are done`, 1, 1},
		} {
			if n := len(regexp.MustCompile(`(?m)^`+c.line).FindAllString(out.String(), -1)); n < c.least || n > c.most {
				t.Errorf("the output has this line %d times: %s", n, c.line)
			}
		}
		if t.Failed() || testing.Verbose() {
			t.Log(out.String())
		}
	})
}
