package mutants

// dynamoMutants break the rules of a store that is opened, of its pages, and of its register.
func dynamoMutants() []mutant {
	return []mutant{
		{"Open tries again what is not final", "dynamostore.Open",
			cut("opening = true"), inDynamo, "TestOpenTriesAgain"},
		{"the options bound the calls of a Store that is open", "dynamostore.Open",
			cut("opening = false"), inDynamo, "TestOpenTriesAgain"},
		{"Open ends with its context", "dynamostore.Open",
			swap(`context.WithTimeout(ctx, timeout)`, `context.WithTimeout(context.WithoutCancel(ctx), timeout)`), inDynamo, "TestOpenGivesUp"},
		{"Open ends after 30 s", "dynamostore.reading.bounds",
			swap(`max(openFor, _)`, `10 * openFor`), inDynamo, "TestOpenGivesUp"},
		{"the error of Open has what the table has answered", "dynamostore.callAs",
			always("met == nil"), inDynamo, "TestOpenGivesUp"},
		{"Open tries no permission when its time is over", "dynamostore.reading.tryPermissions",
			never("ctx.err"), inDynamo, "TestOpenGivesUpBetweenPermissions"},
		{"what is refused is not tried again", "dynamostore.final",
			never("untouched"), inDynamo, "TestOpenReportsRefusalsAtOnce"},
		{"a page that is full is the last one", "dynamostore.reading.List",
			without("limit"), inDynamo, "TestAPageIsOneRequest"},
		{"a value is written only over what was read", "dynamostore.Register.replace",
			swap(`condition := _`, `condition := "attribute_not_exists(" + e.name("nothing") + ")"; _ = read`), inDynamo, "TestUnansweredPut"},
		{"a Put recognizes its own value", "dynamostore.Register.Put",
			without("read == id"), inDynamo, "TestUnansweredPut"},
		{"a value that was overwritten meanwhile is not written again", "dynamostore.Register.Put",
			never("err == nil && unanswered"), inDynamo, "TestPutOfAnotherMeanwhile"},
		{"a refused Put says that an attempt was not answered", "dynamostore.Register.Put",
			cut("outcomeunknown"), inDynamo, "TestPutOfAnotherMeanwhile"},
		{"a Put whose value cannot be read says that an attempt was not answered", "dynamostore.Register.Put",
			never("err != nil && unanswered"), inDynamo, "TestPutThatCannotBeRead"},
	}
}
