package mutants

import "slices"

// coreMutants break the rules of the engine that follows the target assignment. Their tests run that
// engine. The rules that it shares with the present engine move here when it replaces that one.
func coreMutants() []mutant {
	return slices.Concat(seatMutants(), costMutants(), shardMutants(), holdMutants(), watchMutants(), adviceMutants())
}
