# The lease table. ../table.md describes its items, and ../iam.md the permissions.

variable "lease_table_name" {
  type        = string
  description = "Name of the lease table. Several groups share one table."
  default     = "shardlease"
}

resource "aws_dynamodb_table" "leases" {
  name         = var.lease_table_name
  billing_mode = "PAY_PER_REQUEST"

  hash_key  = "leaseGroup" # group, "/", kind
  range_key = "leaseKey"   # shard, or the incarnation of a seat

  attribute {
    name = "leaseGroup"
    type = "S"
  }

  attribute {
    name = "leaseKey"
    type = "S"
  }

  # Sweeps the tombstones of removed shards. No other item has this attribute.
  ttl {
    attribute_name = "expires"
    enabled        = true
  }

  point_in_time_recovery {
    enabled = true
  }

  # To destroy the table, turn this off first.
  deletion_protection_enabled = true
}

output "lease_table_arn" {
  description = "For the policies."
  value       = aws_dynamodb_table.leases.arn
}
