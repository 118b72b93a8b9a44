package mutants

import "slices"

// ruleMutants break the rules by which the engine decides.
func ruleMutants() []mutant {
	return slices.Concat(seatMutants(), costMutants(), shardMutants(), workerMutants(), holdMutants(), watchMutants(), unlistedMutants(), adviceMutants(), sessionMutants(), contentionMutants(), moveMutants(), failingMutants(), causeMutants(), endsMutants())
}
