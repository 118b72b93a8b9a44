// Package integration runs the library against Amazon's own DynamoDB Local, with
// faults injected into single HTTP requests.
//
// The tests look for a server in this order: DYNAMODB_ENDPOINT, if set; a
// container of the official image, if Docker can be reached; otherwise they skip
// with one sentence. SHARDLEASE_REQUIRE_DYNAMODB=1 turns the skip into a failure.
// Where no registry can be reached, provide-image builds the image.
package integration
