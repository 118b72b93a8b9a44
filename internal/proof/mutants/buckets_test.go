package mutants

// bucketMutants break the rules of the buckets of lease rows, which are those of package
// dynamostore alone.
func bucketMutants() []mutant {
	return []mutant{
		{"a row is in the bucket of its name", "dynamostore.partition",
			swap(`int(_ % uint32(_))`, `0`), inDynamo, "TestBucketIsStored"},
		{"a new row is stored in its bucket", "dynamostore.Store.create",
			cut("maps.copy"), inDynamo, "TestStoreInBuckets"},
		{"a fence is in the bucket of its row", "dynamostore.Store.Fence",
			swap(`s.itemKey(_, $key)`, `keyOf(partition($key, 1), $key.Name), error(nil)`), inDynamo, "TestBucketsOfAGroup"},
		{"a group keeps its number of buckets", "dynamostore.Store.record",
			never("buckets > 1"), inDynamo, "TestBucketsOfAGroup"},
		{"another number of buckets is refused", "dynamostore.reading.recorded",
			never("option > 0"), inDynamo, "TestBucketsOfAGroup"},
		{"Open decides the number of buckets", "dynamostore.reading.open",
			never("buckets > 0"), inDynamo, "TestFirstWorkersRace"},
		{"a group without a record has no number of buckets yet", "dynamostore.reading.bucketsOf",
			swap(`return r.buckets, _`, `s.buckets.Store(group, r.buckets); return r.buckets, err`), inDynamo, "TestBucketsOfAGroup"},
		{"a number of buckets that cannot be is not used", "dynamostore.readGroupRecord",
			without("mostbuckets"), inDynamo, "TestRecordOfAGroupThatCannotBeRead"},
		{"a listing of buckets is ordered", "dynamostore.head.before",
			swap(`strings.Compare($a, $b)`, `strings.Compare($b, $a)`), inDynamo, "TestBucketsOfAGroup"},
		{"a listing ends if one bucket cannot be read", "dynamostore.merge",
			without(`name == ""`), inDynamo, "TestListingOfBuckets"},
		{"a listing asks for a few buckets at a time", "dynamostore.merge",
			swap(`make(chan struct{}, few)`, `make(chan struct{}, 16)`), inDynamo, "TestListingOfBuckets"},
		{"a page asks each bucket for its share", "dynamostore.reading.query",
			swap(`($limit-1)/buckets + 1`, `$limit`), inDynamo, "TestPagesOfBuckets"},
		{"and then for a few more", "dynamostore.share.next",
			swap(`max(1, _, _)`, `s.rows`), inDynamo, "TestPagesOfBuckets"},
		{"a bucket is asked for the rest of its share", "dynamostore.share.next",
			never("rest"), inDynamo, "TestShare"},
		{"a row outside its bucket is not adopted", "dynamostore.reading.query",
			never("partition("), inDynamo, "TestLostRecordOfBuckets"},
		{"rows in other buckets are noticed without a record", "dynamostore.reading.compare",
			swap(`append($own, _)`, `$own`), inDynamo, "TestLostRecordOfBuckets"},
		{"rows in other buckets are not left behind by an adoption", "dynamostore.Store.Adopt",
			never(`table == ""`), inDynamo, "TestLostRecordOfBuckets"},
	}
}
