// Package integration runs the library against Amazon's DynamoDB Local. It is a module of its
// own, so that programs which import the library do not get the dependencies of these tests.
//
// Its rooms are folders:
//
//   - store: dynamostore on the real service, with faults injected into single HTTP requests;
//   - histories: operations of concurrent clients, checked for linearizability;
//   - workers: workers in real time, and under load;
//   - processes: worker processes that are killed, frozen and cut off;
//   - kcl: leases that move from the KCL's table to the library, and back;
//   - report: counted requests and units, and the measurements in docs/measurements.md;
//   - guides: code that the guides offer to copy, and examples that need a server.
//
// The tests use the server at DYNAMODB_ENDPOINT if it is set, or else a container of the
// official image, which all rooms of a working copy share. The last room to leave ends it.
// Without a Docker engine the tests skip with one sentence; SHARDLEASE_REQUIRE_DYNAMODB=1
// turns the skip into a failure. A container that does not start is a failure.
// If no registry can be reached, provide-image builds the image.
//
// Bounds in real time hold with SHARDLEASE_LONG=1. A room that has such bounds then waits
// until no other room is at work, and the others wait for it.
//
// start-dynalite runs the store's contract on another server.
package integration
