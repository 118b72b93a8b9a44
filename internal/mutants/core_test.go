package mutants

import "slices"

// coreMutants break the rules of the engine that follows the target assignment. Their tests run that
// engine. The rules that it shares with the present engine move here when it replaces that one.
func coreMutants() []mutant {
	return slices.Concat(costMutants(), holdMutants(), watchMutants(), adviceMutants())
	return slices.Concat(seatMutants(), shardMutants(), holdMutants(), watchMutants(), adviceMutants())
}
