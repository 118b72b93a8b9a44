package fencetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

var errStale = errors.New("stale")

// A table stands for a database: its transactions are atomic, and look at their context first, as
// those of real ones do.
type table struct {
	mu      sync.Mutex
	fences  map[string]Fence  // by any key that a sink chooses
	stamps  map[string]int64  // the time of the last write
	effects map[string][]byte // by shard: lines
}

func newTable() *table {
	return &table{fences: map[string]Fence{}, stamps: map[string]int64{}, effects: map[string][]byte{}}
}

func (t *table) tx(ctx context.Context, do func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return do()
}

// list returns the effects of a shard.
func (t *table) list(ctx context.Context, shard string) (list [][]byte, err error) {
	err = t.tx(ctx, func() error {
		for line := range strings.Lines(string(t.effects[shard])) {
			list = append(list, []byte(strings.TrimSuffix(line, "\n")))
		}
		return nil
	})
	return list, err
}

// A step is a part of what a sink does with an effect.
type step func(f Fence, effect []byte) error

// sink returns a sink that takes each step in a transaction of its own, until one fails.
func (t *table) sink(steps ...step) Sink {
	return Sink{Effects: t.list, Apply: func(ctx context.Context, f Fence, effect []byte) error {
		for _, take := range steps {
			if err := t.tx(ctx, func() error { return take(f, effect) }); err != nil {
				return err
			}
		}
		return nil
	}}
}

// atOnce is several steps in one transaction.
func atOnce(steps ...step) step {
	return func(f Fence, effect []byte) error {
		for _, take := range steps {
			if err := take(f, effect); err != nil {
				return err
			}
		}
		return nil
	}
}

// compare refuses a generation that is lower than the fence.
func (t *table) compare(f Fence, _ []byte) error {
	return staleIf(t.fences[f.Shard].Generation > f.Generation)
}

func (t *table) raise(f Fence, _ []byte) error { t.fences[f.Shard] = f; return nil }

func (t *table) write(f Fence, effect []byte) error {
	t.effects[f.Shard] = append(append(t.effects[f.Shard], effect...), '\n')
	return nil
}

func (t *table) erase(f Fence, _ []byte) error { delete(t.effects, f.Shard); return nil }

func staleIf(is bool) error {
	if is {
		return errStale
	}
	return nil
}

// fenced compares and writes in one transaction.
func (t *table) fenced() Sink {
	s := t.sink(atOnce(t.compare, t.raise, t.write))
	s.Raise = t.raiseOnly
	return s
}

// raiseOnly raises a fence in a transaction without an effect.
func (t *table) raiseOnly(ctx context.Context, f Fence) error {
	return t.tx(ctx, func() error { return atOnce(t.compare, t.raise)(f, nil) })
}

// checkFirst compares in one transaction and writes in the next.
func (t *table) checkFirst() Sink { return t.sink(t.compare, atOnce(t.raise, t.write)) }

type applies func(ctx context.Context, f Fence, effect []byte) error

// around returns the sink with another Apply, which is given the one that it replaces.
func around(s Sink, do func(ctx context.Context, f Fence, effect []byte, apply applies) error) Sink {
	apply := s.Apply
	s.Apply = func(ctx context.Context, f Fence, effect []byte) error { return do(ctx, f, effect, apply) }
	return s
}

// right is the sink that is fenced.
func right(*T) Sink {
	s := newTable().fenced()
	s.Restart = func(context.Context) error { return nil }
	s.Refusal = func(err error) bool { return errors.Is(err, errStale) }
	return s
}

// oneValue keeps the last effect of each shard only.
func oneValue(*T) Sink {
	db := newTable()
	s := db.sink(atOnce(db.compare, db.raise, db.erase, db.write))
	s.Raise = db.raiseOnly
	return s
}

// locked lets one writer at a time write, from its first use of the context on.
func locked(*T) Sink {
	var all sync.Mutex
	return around(right(nil), func(ctx context.Context, f Fence, effect []byte, apply applies) error {
		all.Lock()
		defer all.Unlock()
		return errors.Join(ctx.Err(), apply(ctx, f, effect))
	})
}

// leased compares with a lease table, which issues the generations.
func leased(*T) Sink {
	db := newTable()
	s := db.sink(atOnce(func(f Fence, _ []byte) error { return staleIf(db.fences[f.Shard] != f) }, db.write))
	s.Grant = func(ctx context.Context, shard, owner string) (f Fence, err error) {
		err = db.tx(ctx, func() error {
			f = Fence{shard, owner, db.fences[shard].Generation + 3559528142471169}
			return db.raise(f, nil)
		})
		return f, err
	}
	return s
}

var errConflict = errors.New("conflict")

// optimistic fails if another writer has written between its read and its write, also one of a
// lower generation.
func optimistic(*T) Sink {
	db := newTable()
	return Sink{Effects: db.list, Raise: db.raiseOnly, Apply: func(ctx context.Context, f Fence, effect []byte) error {
		read := ""
		return db.sink(func(f Fence, effect []byte) error {
			read = string(db.effects[f.Shard])
			return db.compare(f, effect)
		}, func(f Fence, effect []byte) error {
			if string(db.effects[f.Shard]) != read {
				return errConflict
			}
			return atOnce(db.raise, db.write)(f, effect)
		}).Apply(ctx, f, effect)
	}}
}

func checkFirst(*T) Sink { return newTable().checkFirst() }

// checkFirstDeaf is checkFirst without a look at the context. between is called between the two.
func checkFirstDeaf(between func()) Sink {
	db := newTable()
	write := db.sink(atOnce(db.raise, db.write)).Apply
	return around(db.sink(db.compare), func(_ context.Context, f Fence, effect []byte, compare applies) error {
		if err := compare(context.Background(), f, effect); err != nil {
			return err
		}
		between()
		return write(context.Background(), f, effect)
	})
}

// byName compares the name of the owner with that of the present owner.
func byName(t *T) Sink {
	db, owners, grant := newTable(), map[string]string{}, leased(t).Grant
	s := db.sink(atOnce(func(f Fence, _ []byte) error { return staleIf(owners[f.Shard] != f.Owner) }, db.write))
	s.Grant = func(ctx context.Context, shard, owner string) (Fence, error) {
		owners[shard] = owner
		return grant(ctx, shard, owner)
	}
	return s
}

// byNameOnce refuses the name of a worker that was replaced.
func byNameOnce(*T) Sink {
	db, replaced, present := newTable(), map[string]bool{}, map[string]string{}
	return db.sink(atOnce(func(f Fence, _ []byte) error {
		if replaced[f.Shard+f.Owner] {
			return errStale
		}
		if last := present[f.Shard]; last != f.Owner {
			replaced[f.Shard+last] = true
		}
		present[f.Shard] = f.Owner
		return nil
	}, db.write))
}

// byClock lets the write with the latest time win.
func byClock(*T) Sink {
	db := newTable()
	return Sink{Effects: db.list, Apply: func(ctx context.Context, f Fence, effect []byte) error {
		sent := time.Now().UnixNano()
		return db.sink(atOnce(func(f Fence, _ []byte) error {
			if db.stamps[f.Shard] > sent {
				return errStale
			}
			db.stamps[f.Shard] = sent
			return nil
		}, db.write)).Apply(ctx, f, effect)
	}}
}

// apart raises the fence in one transaction and applies the effect in the next.
func apart(*T) Sink {
	db := newTable()
	return db.sink(atOnce(db.compare, db.raise), db.write)
}

// effectFirst applies the effect in one transaction, and compares in the next.
func effectFirst(*T) Sink {
	db := newTable()
	return db.sink(db.write, atOnce(db.compare, db.raise))
}

// keyed keeps a fence under a key of the sink's choice.
func keyed(key func(Fence) string) func(*T) Sink {
	return func(*T) Sink {
		db := newTable()
		under := func(take step) step {
			return func(f Fence, effect []byte) error {
				f.Shard = key(f)
				return take(f, effect)
			}
		}
		return db.sink(atOnce(under(db.compare), under(db.raise), db.write))
	}
}

// compared is the right sink with another comparison of generations.
func compared(stale func(mine, stored int64) bool) func(*T) Sink {
	return func(*T) Sink {
		db := newTable()
		return db.sink(atOnce(func(f Fence, _ []byte) error {
			stored, ok := db.fences[f.Shard]
			return staleIf(ok && stale(f.Generation, stored.Generation))
		}, db.raise, db.write))
	}
}

// forgetful keeps its fence in its process.
func forgetful(*T) Sink {
	db := newTable()
	s := db.fenced()
	s.Restart = func(context.Context) error { clear(db.fences); return nil }
	return s
}

// polite drops a stale effect and reports success.
func polite(*T) Sink {
	return around(right(nil), func(ctx context.Context, f Fence, effect []byte, apply applies) error {
		if err := apply(ctx, f, effect); !errors.Is(err, errStale) {
			return err
		}
		return nil
	})
}

// trusting applies a repetition of an effect without a comparison.
func trusting(*T) Sink {
	db := newTable()
	return around(db.fenced(), func(ctx context.Context, f Fence, effect []byte, apply applies) error {
		err := apply(ctx, f, effect)
		return errors.Join(db.tx(ctx, func() error {
			if errors.Is(err, errStale) && strings.Contains(string(db.effects[f.Shard]), string(effect)) {
				err = db.write(f, effect)
			}
			return nil
		}), err)
	})
}

// lastShard keeps the fence of the shard that wrote last.
func lastShard(*T) Sink {
	db := newTable()
	return db.sink(func(f Fence, _ []byte) error {
		maps.DeleteFunc(db.fences, func(shard string, _ Fence) bool { return shard != f.Shard })
		return nil
	}, atOnce(db.compare, db.raise, db.write))
}

// createsFirst is right except for the first effect of a shard: it looks whether there is a fence,
// and creates it in another step.
func createsFirst(*T) Sink {
	db := newTable()
	create := db.sink(atOnce(db.raise, db.write)).Apply
	return around(db.fenced(), func(ctx context.Context, f Fence, effect []byte, apply applies) error {
		exists := false
		if err := db.tx(ctx, func() error { _, exists = db.fences[f.Shard]; return nil }); err != nil {
			return err
		}
		if exists {
			return apply(ctx, f, effect)
		}
		return create(ctx, f, effect)
	})
}

// raisesLater compares and applies in one transaction, and raises the fence in the next.
func raisesLater(*T) Sink {
	return newTable().raises(func(before, mine int64) bool { return mine > before })
}

// lowers compares and applies in one transaction, and stores its generation in the next, even if
// the fence is higher by then.
func lowers(*T) Sink { return newTable().raises(func(int64, int64) bool { return true }) }

func (t *table) raises(raise func(before, mine int64) bool) Sink {
	return t.sink(atOnce(t.compare, t.write), func(f Fence, _ []byte) error {
		if raise(t.fences[f.Shard].Generation, f.Generation) {
			t.fences[f.Shard] = f
		}
		return nil
	})
}

// raisesFirstLater is right except for the first effect of a shard, whose fence it creates after the
// effect.
func raisesFirstLater(*T) Sink {
	db := newTable()
	later := db.raises(func(before, mine int64) bool { return mine > before })
	return around(db.fenced(), func(ctx context.Context, f Fence, effect []byte, apply applies) error {
		db.mu.Lock()
		_, exists := db.fences[f.Shard]
		db.mu.Unlock()
		if exists {
			return apply(ctx, f, effect)
		}
		return later.Apply(ctx, f, effect)
	})
}

// checksTwice compares, writes, and compares again with the highest generation that has written.
func checksTwice(*T) Sink {
	db, highest := newTable(), map[string]int64{}
	check := func(f Fence, _ []byte) error { return staleIf(highest[f.Shard] > f.Generation) }
	raise := func(f Fence, _ []byte) error { highest[f.Shard] = max(highest[f.Shard], f.Generation); return nil }
	return db.sink(check, atOnce(raise, db.write), check)
}

// sorted is checkFirst, whose readers see the effects sorted by generation.
func sorted(*T) Sink {
	db := newTable()
	s := db.checkFirst()
	s.Effects = func(ctx context.Context, shard string) ([][]byte, error) {
		list, err := db.list(ctx, shard)
		slices.SortStableFunc(list, func(a, b []byte) int { return cmp.Compare(generationOf(a), generationOf(b)) })
		return list, err
	}
	return s
}

func generationOf(effect []byte) (generation int64) {
	_, rest, _ := strings.Cut(string(effect), "generation ")
	_, _ = fmt.Sscan(rest, &generation)
	return generation
}

// once keeps the ids of effects, and compares no generations. id makes the id.
func once(id func(f Fence, effect []byte) string) func(*T) Sink {
	return func(*T) Sink { return onceBy(map[string]bool{}, id) }
}

func onceBy(done map[string]bool, id func(f Fence, effect []byte) string) Sink {
	db := newTable()
	s := db.sink(func(f Fence, effect []byte) error {
		if id := id(f, effect); !done[id] {
			done[id] = true
			return db.write(f, effect)
		}
		return nil
	})
	s.Restart = func(context.Context) error { return nil }
	return s
}

func byEffect(_ Fence, effect []byte) string { return string(effect) }

// onceUntilRestart keeps the ids in its process.
func onceUntilRestart(*T) Sink {
	done := map[string]bool{}
	s := onceBy(done, byEffect)
	s.Restart = func(context.Context) error { clear(done); return nil }
	return s
}

// onceOrError refuses a repetition.
func onceOrError(*T) Sink {
	seen := map[string]bool{}
	s := onceBy(map[string]bool{}, byEffect)
	return around(s, func(ctx context.Context, f Fence, effect []byte, apply applies) error {
		if seen[string(effect)] {
			return errStale
		}
		seen[string(effect)] = true
		return apply(ctx, f, effect)
	})
}

// looksFirst looks for the id in one transaction and writes in the next. between is called between
// the two.
func looksFirst(between func(ctx context.Context) error) Sink {
	db := newTable()
	return around(db.sink(db.write), func(ctx context.Context, f Fence, effect []byte, write applies) error {
		again := false
		err := db.tx(context.Background(), func() error {
			again = strings.Contains(string(db.effects[f.Shard]), string(effect))
			return nil
		})
		if err = errors.Join(err, between(ctx)); err != nil || again {
			return err
		}
		return write(context.Background(), f, effect)
	})
}

// busy refuses to write while another writer writes.
func busy(*T) Sink {
	var all sync.Mutex
	s := right(nil)
	s.Refusal = nil
	return around(s, func(ctx context.Context, f Fence, effect []byte, apply applies) error {
		if !all.TryLock() {
			return errors.New("busy")
		}
		defer all.Unlock()
		return errors.Join(ctx.Err(), apply(ctx, f, effect))
	})
}

// erases deletes the value of a shard before it compares.
func erases(*T) Sink {
	db := newTable()
	return db.sink(db.erase, atOnce(db.compare, db.raise, db.write))
}

// checkFirstOneValue is checkFirst, and keeps the last effect only.
func checkFirstOneValue(*T) Sink {
	db := newTable()
	s := db.checkFirst()
	s.Effects = func(ctx context.Context, shard string) ([][]byte, error) {
		list, err := db.list(ctx, shard)
		return list[max(0, len(list)-1):], err
	}
	return s
}

// loses reports success for an effect that conflicts with another one, and does not apply it.
func loses(*T) Sink {
	return around(optimistic(nil), func(ctx context.Context, f Fence, effect []byte, apply applies) error {
		if err := apply(ctx, f, effect); !errors.Is(err, errConflict) {
			return err
		}
		return nil
	})
}
