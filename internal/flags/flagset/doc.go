// Package flagset evaluates feature flags as flagd does: flag sets in flagd's schema, JsonLogic rules with
// flagd's operators fractional, starts_with, ends_with and sem_ver, shared rules by $ref, its reasons and its
// error codes. Two operators for networks are added: cidr and node_selector.
//
// A set is prepared once, by Parse, and is immutable from then on: any number of goroutines may evaluate it. Parse
// reports every problem of a set with line and reason, and refuses the set as a whole. A Lenient read refuses only
// what flagd itself refuses; other faults fail at evaluation, as in flagd.
//
// The reference is the code of flagd core v0.16.1 with its JsonLogic library; results for malformed rules are the
// same too, and test/flagd compares the two. This package differs on purpose in a few points. In evaluation: a
// number is an integer only if the conversion loses nothing; $refs may be nested (flagd resolves them in random
// order, and accepts cyclic ones); shared rules are only inserted into targeting and shared rules (flagd also
// replaces them in variants, but none whose name JSON escapes); and the work of one evaluation is bounded. In
// reading: names are taken literally (flagd accepts State for state, and in YAML 0x10 for 16); a date in YAML is
// text; a file has one document; a byte order mark is skipped; and a flagSetId is only metadata.
package flagset

// Algorithm names the algorithm that maps a subject to a bucket. It is stored with every decision that must be
// repeatable, because another version may map the same subject to another bucket.
const Algorithm = "flagd/fractional/v2 murmur3-x86-32"
