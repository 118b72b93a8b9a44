package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardlease/shardlease-go/shardlease/inspect"
)

// An incident is a way in which a fleet gets a warning, and the way out of it. Unless it says otherwise, the
// fleet is the workers a, b and c with six shards, and each handler marks a position once a second.
type incident struct {
	code  inspect.Code
	level string         // as check prints it
	with  []inspect.Code // the other warnings that the cause has
	begin func(*scene)   // starts the fleet
	cause func(*scene)
	// watch is for how long check observes, and within is when it has ended, counted from the cause.
	watch, within time.Duration
	look          []string // the shard and the workers for which the names in the commands of the page stand
	mend          func(*scene)
	over          time.Duration // when check prints OK again, counted from the mending
	after         []inspect.Code
}

// TestIncidents: real workers get into the state of each warning. Check prints OK before, the warning and no
// other in time, and OK again after the commands and the repairs of the section in docs/operations.md. If
// nothing is mended, the warning stays. Each command that a section says to type is typed in an incident.
func TestIncidents(t *testing.T) {
	t.Parallel() // the tests beside it mostly wait
	all := slices.Concat(fleetIncidents(), workerIncidents(), shardIncidents(), moveIncidents(), planIncidents(), tableIncidents())
	for _, code := range inspect.Codes() {
		var typed []string // in the incidents of this warning
		ran := 0
		ways := slices.DeleteFunc(slices.Clone(all), func(i incident) bool { return i.code != code })
		if len(ways) == 0 {
			t.Errorf("no incident has the warning %s", code)
		}
		for n, way := range ways {
			t.Run(fmt.Sprintf("%s/%d", code, n), func(t *testing.T) {
				for name, mended := range map[string]bool{"mended": true, "left alone": false} {
					t.Run(name, func(t *testing.T) {
						synctest.Test(t, func(t *testing.T) { typed = append(typed, way.happen(t, mended)...) })
						ran++
					})
				}
			})
		}
		for _, command := range advised(t, code) {
			if ran == 2*len(ways) && !slices.Contains(typed, command) { // without a filter of tests
				t.Errorf("no incident tries whether %q leads out of %s, as its section says", command, code)
			}
		}
	}
}

// happen lets the incident happen, and returns the commands that have mended it.
func (i incident) happen(t *testing.T, mended bool) []string {
	s := newScene(t)
	defer s.end()
	if i.begin == nil {
		i.begin = func(s *scene) { s.join("a", "b", "c") }
	}
	i.begin(s)
	time.Sleep(3 * time.Minute)
	s.expect("before the incident", s.check(12*time.Second))

	i.cause(s)
	time.Sleep(i.within - i.watch)
	warned := append([]inspect.Code{i.code}, i.with...)
	found := s.check(i.watch)
	s.expect("in the incident", found, warned...)
	if found.level[i.code] != i.level {
		t.Errorf("the level is %q, want %q:\n%s", found.level[i.code], i.level, found.out)
	}
	if !mended {
		time.Sleep(i.over - i.watch)
		if found := s.check(i.watch); found.level[i.code] == "" {
			t.Errorf("nothing was mended, and the warning has ended:\n%s", found.out)
		}
		return nil
	}
	s.followLook(i.code, i.look)
	s.typed = nil
	i.mend(s)
	s.onPage(i.code)
	time.Sleep(i.over - i.watch)
	s.expect("after the mending", s.check(i.watch), i.after...)
	return s.typed
}

// A finding is what check has printed.
type finding struct {
	out   string
	code  int
	level map[inspect.Code]string // of each warning
}

// check types the command, and reads what it prints.
func (s *scene) check(watch time.Duration) finding {
	s.t.Helper()
	args := []string{"check"}
	if watch > 0 {
		args = append(args, "--observe", watch.String())
	}
	f := finding{level: map[inspect.Code]string{}}
	f.out, f.code = s.exec("", args...)
	lines := strings.Split(strings.TrimSpace(f.out), "\n")
	for _, line := range lines[1:] {
		level, rest, _ := strings.Cut(line, " ")
		code := strings.TrimSuffix(strings.Fields(rest)[0], ":")
		if f.level[inspect.Code(code)] != "ERROR" {
			f.level[inspect.Code(code)] = level
		}
	}
	return f
}

// expect checks that these warnings and no others were found, and that the exit code is that of the worst one. It
// ignores the warning wish unless codes contains it, because many incidents are caused or repaired by a wish.
func (s *scene) expect(when string, f finding, codes ...inspect.Code) {
	s.t.Helper()
	want, status := checkOK, map[string]int{"INFO": checkOK, "WARN": checkWarning, "ERROR": checkCritical}
	var found []inspect.Code
	for code, level := range f.level {
		if want = max(want, status[level]); code != inspect.CodeWish || slices.Contains(codes, code) {
			found = append(found, code)
		}
	}
	slices.Sort(found)
	slices.Sort(codes)
	if !slices.Equal(found, codes) || f.code != want || !strings.HasPrefix(f.out, checkStatus(want)+" - orders: ") {
		s.t.Errorf("%s: warnings %v, want %v; exit code %d, want %d:\n%s", when, found, codes, f.code, want, f.out)
	}
}
