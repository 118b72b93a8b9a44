package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// now is the time at which every transcript begins.
func now() time.Time { return time.Date(2000, 1, 2, 12, 0, 0, 0, time.UTC) }

// A world is what a transcript runs in: tables in memory, and a clock that stands still while no command
// runs.
type world struct {
	tables *memory
	env    map[string]string
	clock  time.Time
	answer string // what the person at the terminal types; - : there is no terminal
	code   int
	stop   time.Duration // when the next command is interrupted; 0: not
}

func newWorld() *world {
	return &world{tables: newMemory("leases"), env: map[string]string{"SHARDLEASE_TABLE": "leases", "SHARDLEASE_GROUP": "orders"}, clock: now(), answer: "-"}
}

// seeds fills the group of the world.
func (w *world) seeds(t testing.TB, text string) {
	t.Helper()
	if err := w.seed(text); err != nil {
		t.Fatal(err)
	}
}

func (w *world) seed(text string) error {
	at := place{w.env["SHARDLEASE_TABLE"], w.env["SHARDLEASE_GROUP"]}
	w.tables.groups[at] = true
	s := seeder{store: w.tables.all[at.table], group: at.group, now: w.clock}
	return s.run(text)
}

// run runs one command, in a bubble whose clock is that of the world.
func (w *world) run(t *testing.T, out, problems io.Writer, args ...string) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(w.clock))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if w.stop > 0 {
			defer time.AfterFunc(w.stop, cancel).Stop()
		}
		w.exec(ctx, out, problems, args...)
		w.clock = time.Now()
	})
	w.stop = 0
}

// exec runs one command in the bubble of the caller.
func (w *world) exec(ctx context.Context, out, problems io.Writer, args ...string) {
	p := operatedBy(strings.NewReader(w.answer+"\n"), out, problems, w.tables, w.env)
	p.terminal = w.answer != "-"
	w.code = p.run(ctx, args)
	w.answer = "-"
}

// operatedBy returns the program of an operator without a terminal.
func operatedBy(in io.Reader, out, problems io.Writer, on tables, env map[string]string) *program {
	return &program{
		in: in, out: out, problems: problems, now: time.Now, operator: "ann@host", tables: on,
		env: func(name string) (string, bool) { value, ok := env[name]; return value, ok },
	}
}

// output runs one command, and returns what it prints.
func (w *world) output(t *testing.T, args ...string) (out, problems string) {
	t.Helper()
	var o, p bytes.Buffer
	w.run(t, &o, &p, args...)
	return o.String(), p.String()
}

// A shim runs transcripts one after the other, and tells the test that runs one.
type shim struct{ *testing.T }

func (s shim) Run(name string, f func(testscript.T)) {
	s.T.Run(name, func(t *testing.T) { f(shim{t}) })
}
func (s shim) Parallel()     {}
func (s shim) Verbose() bool { return testing.Verbose() }

// TestTranscripts runs the transcripts in testdata on tables in memory. Besides the commands of testscript
// they have:
//
//	shardlease ARG…           runs the program; ! if it must fail
//	code N                    the last command had the exit code N
//	seed FILE                 makes the transitions in a file; see seeder
//	types TEXT                the next command has a terminal, on which a person types that
//	interrupt DURATION        the next command is interrupted after that time
//	later DURATION            the clock goes on
//	generation SHARD NAME     sets a variable to the present generation of a shard
//	spoil lease NAME|wishes   a record of that kind cannot be read; ends: those of this hour; none: all can be read again
//	fault reads|lost|denied|restored|none
func TestTranscripts(t *testing.T) {
	testscript.RunT(shim{t}, testscript.Params{
		Dir: "testdata", UpdateScripts: os.Getenv("UPDATE_TRANSCRIPTS") != "", RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			env.Values["on"], env.Values["t"] = newWorld(), env.T().(shim).T
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"shardlease": func(ts *testscript.TestScript, neg bool, args []string) {
				w := ts.Value("on").(*world)
				w.run(ts.Value("t").(*testing.T), ts.Stdout(), ts.Stderr(), args...)
				if neg != (w.code != 0) {
					ts.Fatalf("exit code %d", w.code)
				}
			},
			"code":      on(func(ts *script, w *world, args []string) { exited(ts, w.code, args[0]) }),
			"seed":      on(func(ts *script, w *world, args []string) { ts.Check(w.seed(ts.ReadFile(args[0]))) }),
			"set":       on(func(_ *script, w *world, args []string) { w.env[args[0]] = args[1] }),
			"types":     on(func(_ *script, w *world, args []string) { w.answer = args[0] }),
			"interrupt": on(func(ts *script, w *world, args []string) { w.stop = length(ts, args[0]) }),
			"later":     on(func(ts *script, w *world, args []string) { w.clock = w.clock.Add(length(ts, args[0])) }),
			"generation": on(func(ts *script, w *world, args []string) {
				ts.Setenv(args[1], fmt.Sprint(w.generation(args[0])))
			}),
			"spoil": on(func(_ *script, w *world, args []string) {
				key := lease.Wishes{Group: "orders"}.Key()
				switch args[0] {
				case "lease":
					key = lease.Key{Group: "orders", Kind: lease.KindLease, Name: args[1]}
				case "ends":
					key = lease.Ends{Group: "orders", Hour: protocol.HourOf(w.clock)}.Key()
				case "seat":
					key = lease.Key{Group: "orders", Kind: lease.KindSeat, Name: args[1]}
				}
				if w.tables.spoil(key, true); args[0] == "none" {
					w.tables.spoilt = nil
				}
			}),
			"fault": on(func(_ *script, w *world, args []string) {
				w.tables.fault, w.tables.restored = args[0], args[0] == "restored"
			}),
		},
	})
}

type script = testscript.TestScript

// on returns a command of a transcript, which is given what the transcript runs in.
func on[W any](do func(ts *script, w W, args []string)) func(*script, bool, []string) {
	return func(ts *script, _ bool, args []string) { do(ts, ts.Value("on").(W), args) }
}

// exited checks the exit code of the last command.
func exited(ts *script, got int, want string) {
	if strconv.Itoa(got) != want {
		ts.Fatalf("exit code %d, want %s", got, want)
	}
}

func length(ts *script, text string) time.Duration {
	d, err := time.ParseDuration(text)
	ts.Check(err)
	return d
}

// generation returns the present generation of a shard.
func (w *world) generation(shard string) int64 {
	r, err := w.tables.all["leases"].Get(context.Background(), lease.Key{Group: "orders", Kind: lease.KindLease, Name: shard})
	if err != nil {
		return 0
	}
	return r.(lease.Row).Generation
}
