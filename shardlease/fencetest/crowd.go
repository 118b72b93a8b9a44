package fencetest

import (
	"fmt"
	"sync"
	"time"
)

const (
	crowdSize   = 8
	crowdWrites = 2
	crowdRounds = 1000
	crowdTime   = 500 * time.Millisecond // after this time no further round begins
	crowdLeast  = 5                      // the least number of rounds, even if they take longer than crowdTime
)

// An attempt is the write of one writer in a crowd.
type attempt struct {
	fence  Fence
	effect string
	err    error
}

// crowd lets several owners of a shard write at once, in many rounds, each with a new shard.
func (s *stage) crowd() error {
	return s.rounds(func(round int) error {
		sh := s.shard()
		attempts, err := sh.attempts(func(f Fence) string { return sh.effect(f) })
		if err != nil {
			return err
		}
		together(sh, round, attempts)
		last := attempts[len(attempts)-1]
		if err := sh.insist(last.fence, last.effect, last.err); err != nil {
			return err
		}
		return explain(sh.inOrder(last.effect), "many wrote at once, and one effect was compared before the other was written. "+
			"Compare and write in one atomic step")
	})
}

// rounds plays rounds until crowdTime is over.
func (s *stage) rounds(play func(round int) error) error {
	from := time.Now()
	for round := range crowdRounds {
		if round >= crowdLeast && time.Since(from) > crowdTime {
			break
		}
		if err := play(round); err != nil {
			return err
		}
	}
	return nil
}

// attempts grants the shard to one worker after another, and prepares their writes.
func (s *shard) attempts(effect func(Fence) string) ([]attempt, error) {
	var all []attempt
	for i := range crowdSize {
		f, err := s.grant(fmt.Sprintf("worker-%d", i))
		if err != nil {
			return nil, err
		}
		for range crowdWrites {
			all = append(all, attempt{fence: f, effect: effect(f)})
		}
	}
	return all, nil
}

// together starts all writers at once, in a different order each round, and waits for them.
func together(s *shard, round int, attempts []attempt) {
	var all sync.WaitGroup
	begin := make(chan struct{})
	for i := range crowdSize {
		writer := (i*3 + round) % crowdSize // 3 has no divisor in common with the size: each writer once
		mine := attempts[writer*crowdWrites : (writer+1)*crowdWrites]
		all.Go(func() {
			<-begin
			for i := range mine {
				mine[i].err = s.send(mine[i].fence, mine[i].effect, nil)
			}
		})
	}
	close(begin)
	all.Wait()
}
