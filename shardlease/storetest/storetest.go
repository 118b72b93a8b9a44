// Package storetest helps to test against a lease table. [Run] is the contract of [lease.Store]
// in executable form. A [Link] is a connection to a store that a test can cut, silence, delay and
// script, to see how a consumer handles a failover.
//
// The suite takes no time: it never sleeps and never waits for anything.
package storetest

import (
	"testing"

	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// Run runs the suite. Each test calls open for its own store, which must be empty; the test of
// every write under every fate opens about 210. open may use t.Cleanup to close the store.
func Run(t *testing.T, open func(t *testing.T) lease.Store) {
	for _, test := range []struct {
		name string
		run  func(b *bench)
	}{
		// The fence.
		{"StaleGenerationIsRefused", staleGenerationIsRefused},
		{"SameWorkerAcquiringAgainGetsAHigherGeneration", sameWorkerAcquiringAgain},
		{"FinishedShardStaysFinished", finishedShardStaysFinished},
		{"RecreatedShardRefusesEarlierGenerations", recreatedShardRefusesEarlierGenerations},
		{"LeaseByNameIsDiscardedAndRevived", leaseByName},
		{"OutdatedCommandIsRefused", outdatedCommandIsRefused},
		{"ReservationEndsWithItsGeneration", reservationEnds},
		{"LateTwinOfAnEarlierWriteIsRefused", lateTwinOfAnEarlierWrite},
		{"SwapFromAnExpectedRowIsRefused", swapFromAnExpectedRow},
		// Changes of hands.
		{"ClaimRacingACommitStartsFromWhatWasStored", claimRacingACommit},
		{"TransferIsNotStarvedByCommits", transferIsNotStarved},
		{"QuarantineRacingACommitIsRefused", quarantineRacingACommit},
		{"TransferCountsUpFromTheStoredCounter", transferCountsUp},
		{"WithdrawnOfferIsNotTaken", withdrawnOfferIsNotTaken},
		{"OfferMadeSinceIsNotLost", offerMadeSinceIsNotLost},
		{"OfferMadeSinceEndsWithItsGeneration", offerMadeSinceEnds},
		{"YieldAndTakeHandOverInOneWrite", yieldAndTake},
		{"OneOfManyClaimsWins", oneOfManyClaimsWins},
		{"EveryLifeOfARow", everyLifeOfARow},
		// Rows and seats.
		{"MissingRowIsNotCreated", missingRowIsNotCreated},
		{"TwoCreatorsMakeOneRow", twoCreatorsMakeOneRow},
		{"TwoSeatsOfOneName", twoSeatsOfOneName},
		{"BeatOrEvictionWins", beatOrEvictionWins},
		{"LateTwinOfASeatCountsForNothing", lateTwinOfASeat},
		{"LeaseRowsAreNeverDeleted", leaseRowsAreNeverDeleted},
		{"RecordsComeBackAsStored", recordsComeBackAsStored},
		{"ListingIsCompleteAndOrdered", listing},
		{"CallersShareNothing", callersShareNothing},
		{"NewGroupIsVerified", newGroupIsVerified},
		// The plan, targets and wishes.
		{"PlanAndWishesComeWithTheSeats", planAndWishesComeWithTheSeats},
		{"JournalIsInOrder", journalIsInOrder},
		{"AdviceComesBackAsStored", adviceComesBackAsStored},
		{"TargetsAreListedByPage", targetsAreListedByPage},
		{"OnePlannerOpensARevision", onePlannerOpensARevision},
		{"GroupIsOfOneKind", groupIsOfOneKind},
		{"OvertakenPlannerWritesNothing", overtakenPlannerWritesNothing},
		{"MissingAdviceIsNotCreated", missingAdviceIsNotCreated},
		{"BadAdviceWritesNothing", badAdviceWritesNothing},
		{"AdviceIsNotShared", adviceIsNotShared},
		// The counts of ends.
		{"EndsComeBackByHour", endsComeBackByHour},
		// Faults and bad input.
		{"EveryWriteUnderEveryFate", everyWriteUnderEveryFate},
		{"EndedContextAnswersNothing", endedContextAnswersNothing},
		{"BadInputWritesNothing", badInputWritesNothing},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(&bench{T: t, open: open, store: open(t)}) })
	}
}
