package storetest_test

import "testing"

// TestCountingStore: the store that ExampleRun shows keeps the contract.
func TestCountingStore(t *testing.T) { testCountingStore(t) }
