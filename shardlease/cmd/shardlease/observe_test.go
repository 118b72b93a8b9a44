package main

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestObservesForAsLongAsAsked: the first and the last look are at least the time of --observe apart, however slowly
// the table answers. So --observe 14s finds that all workers are dead, although their heartbeats have to stand still for
// 13.8 s. If the table does not answer at all (here: for an hour), the result is UNKNOWN. No check takes longer than 24 s.
func TestObservesForAsLongAsAsked(t *testing.T) {
	for _, delay := range []time.Duration{0, 500 * time.Millisecond, 800 * time.Millisecond, 1900 * time.Millisecond, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			s := newScene(t)
			defer s.end()
			s.join("a", "b", "c")
			time.Sleep(10 * time.Minute)
			s.kill("a", "b", "c")
			s.tables.change(func() { s.tables.slow = delay })
			want, begun := checkCritical, time.Now()
			if delay == time.Hour {
				want = checkUnknown
			}
			if out, code := s.exec("", "check", "--observe", "14s"); code != want {
				t.Errorf("with a table that answers after %v: exit code %d, want %d\n%s", delay, code, want, out)
			}
			if took := time.Since(begun); took > 24*time.Second {
				t.Errorf("with a table that answers after %v, the check takes %v", delay, took)
			}
		})
	}
}
