package mutants

// readerMutants break the rules of a Reader, which looks at a table and records nothing.
func readerMutants() []mutant {
	return []mutant{
		{"OpenReader records nothing", "dynamostore.OpenReader",
			swap(`r.Verify`, `(&Store{s}).Verify`), inDynamo, "TestReaderOfANewGroup"},
		{"OpenReader tries no write", "dynamostore.OpenReader",
			swap(`s.reads`, `(&Store{s}).tries`), inDynamo, "TestReaderOnlyReads"},
		{"a reader records no table", "dynamostore.Reader.Verify",
			swap(`_, _, err := _; return err`, `return (&Store{r.reading}).Verify(ctx, group)`), inDynamo, "TestReaderOfANewGroup"},
		{"a reader reports a restored table", "dynamostore.reading.compare",
			never("table != now"), inDynamo, "TestReaderOfARestoredTable"},
		{"a reader reports that the record of a table was lost", "dynamostore.reading.compare",
			always("!rows"), inDynamo, "TestReaderOfARestoredTable"},
		{"a reader uses the number of buckets that is stored", "dynamostore.reading.bucketsOf",
			swap(`return r.buckets, _`, `return min(r.buckets, 1), err`), inDynamo, "TestReaderOnlyReads"},
	}
}
