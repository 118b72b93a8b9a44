package fencetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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

// advance raises a fence, unless it is higher.
func (t *table) advance(key string, f Fence) error {
	if t.fences[key].Generation > f.Generation {
		return errStale
	}
	t.fences[key] = f
	return nil
}

func (t *table) append(f Fence, effect []byte) {
	t.effects[f.Shard] = append(append(t.effects[f.Shard], effect...), '\n')
}

func (t *table) list(ctx context.Context, shard string) (list [][]byte, err error) {
	err = t.tx(ctx, func() error {
		for line := range strings.Lines(string(t.effects[shard])) {
			list = append(list, []byte(strings.TrimSuffix(line, "\n")))
		}
		return nil
	})
	return list, err
}

// fencedBy compares and writes in one transaction, with the fence under a key.
func fencedBy(db *table, key func(Fence) string) Sink {
	return Sink{
		Effects: db.list,
		Apply: func(ctx context.Context, f Fence, effect []byte) error {
			return db.tx(ctx, func() error {
				if err := db.advance(key(f), f); err != nil {
					return err
				}
				db.append(f, effect)
				return nil
			})
		},
	}
}

func perShard(f Fence) string { return f.Shard }

// right is the sink that is fenced.
func right(*T) Sink {
	s := fencedBy(newTable(), perShard)
	s.Restart = func(context.Context) error { return nil }
	s.Refusal = func(err error) bool { return errors.Is(err, errStale) }
	return s
}

// oneValue keeps the last effect of each shard only.
func oneValue(*T) Sink {
	db := newTable()
	return Sink{
		Effects: db.list,
		Apply: func(ctx context.Context, f Fence, effect []byte) error {
			return db.tx(ctx, func() error {
				if err := db.advance(f.Shard, f); err != nil {
					return err
				}
				delete(db.effects, f.Shard)
				db.append(f, effect)
				return nil
			})
		},
	}
}

// locked lets one writer at a time write, from its first use of the context on.
func locked(*T) Sink {
	var all sync.Mutex
	s := right(nil)
	apply := s.Apply
	s.Apply = func(ctx context.Context, f Fence, effect []byte) error {
		all.Lock()
		defer all.Unlock()
		return errors.Join(ctx.Err(), apply(ctx, f, effect))
	}
	return s
}

// leased compares with a lease table, which issues the generations.
func leased(*T) Sink {
	db := newTable()
	return Sink{
		Effects: db.list,
		Grant: func(ctx context.Context, shard, owner string) (f Fence, err error) {
			err = db.tx(ctx, func() error {
				f = Fence{shard, owner, db.fences[shard].Generation + 3559528142471169}
				db.fences[shard] = f
				return nil
			})
			return f, err
		},
		Apply: func(ctx context.Context, f Fence, effect []byte) error {
			return db.tx(ctx, func() error {
				if db.fences[f.Shard] != f {
					return errStale
				}
				db.append(f, effect)
				return nil
			})
		},
	}
}

// optimistic fails if another writer has written between its read and its write, also one of a
// lower generation.
func optimistic(*T) Sink {
	db := newTable()
	return Sink{
		Effects: db.list,
		Apply: func(ctx context.Context, f Fence, effect []byte) error {
			var read string
			err := db.tx(ctx, func() error {
				read = string(db.effects[f.Shard])
				return db.advanceIfHigher(f)
			})
			return errors.Join(err, db.tx(ctx, func() error {
				if err != nil || string(db.effects[f.Shard]) != read {
					return errors.New("conflict")
				}
				db.fences[f.Shard] = f
				db.append(f, effect)
				return nil
			}))
		},
	}
}

func (t *table) advanceIfHigher(f Fence) error {
	if t.fences[f.Shard].Generation > f.Generation {
		return errStale
	}
	return nil
}

// checkFirst compares in one transaction and writes in the next.
func checkFirst(*T) Sink { return checkFirstOn(newTable()) }

func checkFirstOn(db *table) Sink {
	return Sink{
		Effects: db.list,
		Apply: func(ctx context.Context, f Fence, effect []byte) error {
			if err := db.tx(ctx, func() error { return db.advanceIfHigher(f) }); err != nil {
				return err
			}
			return db.tx(ctx, func() error {
				db.fences[f.Shard] = f
				db.append(f, effect)
				return nil
			})
		},
	}
}

// checkFirstDeaf is checkFirst without a look at the context. between is called between the two.
func checkFirstDeaf(between func()) Sink {
	db := newTable()
	return Sink{
		Effects: db.list,
		Apply: func(_ context.Context, f Fence, effect []byte) error {
			if err := db.tx(context.Background(), func() error { return db.advanceIfHigher(f) }); err != nil {
				return err
			}
			between()
			return db.tx(context.Background(), func() error {
				db.fences[f.Shard] = f
				db.append(f, effect)
				return nil
			})
		},
	}
}

// byName compares the name of the owner with that of the present owner.
func byName(t *T) Sink {
	s := leased(t)
	db := newTable()
	grant, owners := s.Grant, map[string]string{}
	s.Effects = db.list
	s.Grant = func(ctx context.Context, shard, owner string) (Fence, error) {
		owners[shard] = owner
		return grant(ctx, shard, owner)
	}
	s.Apply = func(ctx context.Context, f Fence, effect []byte) error {
		return db.tx(ctx, func() error {
			if owners[f.Shard] != f.Owner {
				return errStale
			}
			db.append(f, effect)
			return nil
		})
	}
	return s
}

// byNameOnce refuses the name of a worker that was replaced.
func byNameOnce(*T) Sink {
	db, replaced, present := newTable(), map[string]bool{}, map[string]string{}
	return Sink{
		Effects: db.list,
		Apply: func(ctx context.Context, f Fence, effect []byte) error {
			return db.tx(ctx, func() error {
				if replaced[f.Shard+f.Owner] {
					return errStale
				}
				if last := present[f.Shard]; last != f.Owner {
					replaced[f.Shard+last] = true
				}
				present[f.Shard] = f.Owner
				db.append(f, effect)
				return nil
			})
		},
	}
}

// byClock lets the write with the latest time win.
func byClock(*T) Sink {
	db := newTable()
	return Sink{
		Effects: db.list,
		Apply: func(ctx context.Context, f Fence, effect []byte) error {
			sent := time.Now().UnixNano()
			return db.tx(ctx, func() error {
				if db.stamps[f.Shard] > sent {
					return errStale
				}
				db.stamps[f.Shard] = sent
				db.append(f, effect)
				return nil
			})
		},
	}
}

// apart raises the fence in one transaction and applies the effect in the next.
func apart(*T) Sink {
	db := newTable()
	return Sink{
		Effects: db.list,
		Apply: func(ctx context.Context, f Fence, effect []byte) error {
			if err := db.tx(ctx, func() error { return db.advance(f.Shard, f) }); err != nil {
				return err
			}
			return db.tx(ctx, func() error { db.append(f, effect); return nil })
		},
	}
}

// effectFirst applies the effect in one transaction, and compares in the next.
func effectFirst(*T) Sink {
	db := newTable()
	return Sink{
		Effects: db.list,
		Apply: func(ctx context.Context, f Fence, effect []byte) error {
			if err := db.tx(ctx, func() error { db.append(f, effect); return nil }); err != nil {
				return err
			}
			return db.tx(ctx, func() error { return db.advance(f.Shard, f) })
		},
	}
}

// keyed keeps a fence under a key of the sink's choice.
func keyed(key func(Fence) string) func(*T) Sink {
	return func(*T) Sink { return fencedBy(newTable(), key) }
}

// compared is the right sink with another comparison of generations.
func compared(stale func(mine, stored int64) error) func(*T) Sink {
	return func(*T) Sink {
		db := newTable()
		return Sink{
			Effects: db.list,
			Apply: func(ctx context.Context, f Fence, effect []byte) error {
				return db.tx(ctx, func() error {
					if stored, ok := db.fences[f.Shard]; ok {
						if err := stale(f.Generation, stored.Generation); err != nil {
							return err
						}
					}
					db.fences[f.Shard] = f
					db.append(f, effect)
					return nil
				})
			},
		}
	}
}

// forgetful keeps its fence in its process.
func forgetful(*T) Sink {
	db := newTable()
	s := fencedBy(db, perShard)
	s.Restart = func(context.Context) error { clear(db.fences); return nil }
	return s
}

// polite drops a stale effect and reports success.
func polite(*T) Sink {
	s := right(nil)
	apply := s.Apply
	s.Apply = func(ctx context.Context, f Fence, effect []byte) error {
		if err := apply(ctx, f, effect); !errors.Is(err, errStale) {
			return err
		}
		return nil
	}
	return s
}

// trusting applies a repetition of an effect without a comparison.
func trusting(*T) Sink {
	db := newTable()
	s := fencedBy(db, perShard)
	apply := s.Apply
	s.Apply = func(ctx context.Context, f Fence, effect []byte) error {
		err := apply(ctx, f, effect)
		return errors.Join(db.tx(ctx, func() error {
			if errors.Is(err, errStale) && strings.Contains(string(db.effects[f.Shard]), string(effect)) {
				db.append(f, effect)
				err = nil
			}
			return nil
		}), err)
	}
	return s
}

// lastShard keeps the fence of the shard that wrote last.
func lastShard(*T) Sink {
	db := newTable()
	s := fencedBy(db, perShard)
	apply := s.Apply
	s.Apply = func(ctx context.Context, f Fence, effect []byte) error {
		return errors.Join(db.tx(ctx, func() error {
			for shard := range db.fences {
				if shard != f.Shard {
					delete(db.fences, shard)
				}
			}
			return nil
		}), apply(ctx, f, effect))
	}
	return s
}

// createsFirst is right except for the first effect of a shard: it looks whether there is a fence,
// and creates it in another step.
func createsFirst(*T) Sink {
	db := newTable()
	s := fencedBy(db, perShard)
	apply := s.Apply
	s.Apply = func(ctx context.Context, f Fence, effect []byte) error {
		exists := false
		if err := db.tx(ctx, func() error { _, exists = db.fences[f.Shard]; return nil }); err != nil {
			return err
		}
		if exists {
			return apply(ctx, f, effect)
		}
		return db.tx(ctx, func() error {
			db.fences[f.Shard] = f
			db.append(f, effect)
			return nil
		})
	}
	return s
}

// raisesLater compares and applies in one transaction, and raises the fence in the next.
func raisesLater(*T) Sink {
	return raises(newTable(), func(before, mine int64) bool { return mine > before })
}

// lowers compares and applies in one transaction, and stores its generation in the next, even if
// the fence is higher by then.
func lowers(*T) Sink { return raises(newTable(), func(int64, int64) bool { return true }) }

func raises(db *table, raise func(before, mine int64) bool) Sink {
	return Sink{
		Effects: db.list,
		Apply: func(ctx context.Context, f Fence, effect []byte) error {
			err := db.tx(ctx, func() error {
				err := db.advanceIfHigher(f)
				if err == nil {
					db.append(f, effect)
				}
				return err
			})
			if err != nil {
				return err
			}
			return db.tx(ctx, func() error {
				if raise(db.fences[f.Shard].Generation, f.Generation) {
					db.fences[f.Shard] = f
				}
				return nil
			})
		},
	}
}

// raisesFirstLater is right except for the first effect of a shard, whose fence it creates after the
// effect.
func raisesFirstLater(*T) Sink {
	db := newTable()
	later, atOnce := raises(db, func(before, mine int64) bool { return mine > before }), fencedBy(db, perShard)
	return Sink{
		Effects: db.list,
		Apply: func(ctx context.Context, f Fence, effect []byte) error {
			db.mu.Lock()
			_, exists := db.fences[f.Shard]
			db.mu.Unlock()
			if exists {
				return atOnce.Apply(ctx, f, effect)
			}
			return later.Apply(ctx, f, effect)
		},
	}
}

// checksTwice compares, writes, and compares again with the highest generation that has written.
func checksTwice(*T) Sink {
	db := newTable()
	highest := map[string]int64{}
	check := func(f Fence) func() error {
		return func() error {
			if highest[f.Shard] > f.Generation {
				return errStale
			}
			return nil
		}
	}
	return Sink{
		Effects: db.list,
		Apply: func(ctx context.Context, f Fence, effect []byte) error {
			if err := db.tx(ctx, check(f)); err != nil {
				return err
			}
			err := db.tx(ctx, func() error {
				highest[f.Shard] = max(highest[f.Shard], f.Generation)
				db.append(f, effect)
				return nil
			})
			return errors.Join(err, db.tx(ctx, check(f)))
		},
	}
}

// sorted is checkFirst, whose readers see the effects sorted by generation.
func sorted(*T) Sink {
	db := newTable()
	s := checkFirstOn(db)
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
	return Sink{
		Effects: db.list,
		Restart: func(context.Context) error { return nil },
		Apply: func(ctx context.Context, f Fence, effect []byte) error {
			return db.tx(ctx, func() error {
				if id := id(f, effect); !done[id] {
					done[id] = true
					db.append(f, effect)
				}
				return nil
			})
		},
	}
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
	apply := s.Apply
	s.Apply = func(ctx context.Context, f Fence, effect []byte) error {
		if seen[string(effect)] {
			return errStale
		}
		seen[string(effect)] = true
		return apply(ctx, f, effect)
	}
	return s
}

// looksFirst looks for the id in one transaction and writes in the next. between is called between
// the two.
func looksFirst(between func(ctx context.Context) error) Sink {
	db := newTable()
	return Sink{
		Effects: db.list,
		Apply: func(ctx context.Context, f Fence, effect []byte) error {
			again := false
			err := db.tx(context.Background(), func() error {
				again = strings.Contains(string(db.effects[f.Shard]), string(effect))
				return nil
			})
			if err = errors.Join(err, between(ctx)); err != nil || again {
				return err
			}
			return db.tx(context.Background(), func() error { db.append(f, effect); return nil })
		},
	}
}

// busy refuses to write while another writer writes.
func busy(*T) Sink {
	var all sync.Mutex
	s := right(nil)
	apply := s.Apply
	s.Apply = func(ctx context.Context, f Fence, effect []byte) error {
		if !all.TryLock() {
			return errors.New("busy")
		}
		defer all.Unlock()
		return errors.Join(ctx.Err(), apply(ctx, f, effect))
	}
	s.Refusal = nil
	return s
}

// erases deletes the value of a shard before it compares.
func erases(*T) Sink {
	db := newTable()
	s := fencedBy(db, perShard)
	apply := s.Apply
	s.Apply = func(ctx context.Context, f Fence, effect []byte) error {
		return errors.Join(db.tx(ctx, func() error { delete(db.effects, f.Shard); return nil }), apply(ctx, f, effect))
	}
	return s
}

// checkFirstOneValue is checkFirst, and keeps the last effect only.
func checkFirstOneValue(*T) Sink {
	db := newTable()
	s := checkFirstOn(db)
	s.Effects = func(ctx context.Context, shard string) ([][]byte, error) {
		list, err := db.list(ctx, shard)
		return list[max(0, len(list)-1):], err
	}
	return s
}

// loses reports success for an effect that conflicts with another one, and does not apply it.
func loses(*T) Sink {
	s := optimistic(nil)
	apply := s.Apply
	s.Apply = func(ctx context.Context, f Fence, effect []byte) error {
		if err := apply(ctx, f, effect); err == nil || err.Error() != "conflict" {
			return err
		}
		return nil
	}
	return s
}
