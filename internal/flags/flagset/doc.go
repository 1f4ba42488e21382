// Package flagset evaluates feature flags as flagd does: flag sets in flagd's schema, JsonLogic rules with
// flagd's operators fractional, starts_with, ends_with and sem_ver, shared rules by $ref, its reasons and its
// error codes. Two operators for networks are added: cidr and node_selector.
//
// A set is prepared once, by Parse, and is immutable from then on: any number of goroutines evaluate it. What
// can be wrong with a set is said when it is read, with line and reason, and the set is refused whole. A
// Lenient read refuses only what flagd itself refuses, and then fails at evaluation as flagd does.
//
// The reference is the code of flagd core v0.16.1 with its JsonLogic library, whose answers to malformed rules
// are kept as well; test/flagd holds the two together. Ours differs on purpose. Where rules are evaluated: a number
// is an integer only when nothing is lost, $refs may be nested (flagd resolves those in random order, and accepts those
// that lead back to themselves), shared rules are only put into targeting and shared rules (flagd also replaces them in
// variants, and none whose name JSON escapes), and an evaluation has an upper bound of work. Where sets are read: names
// are as they are written (flagd takes State for state, and in YAML 0x10 for 16), a date in YAML is text, a file has one
// document, a byte order mark is passed over, and a flagSetId is metadata and nothing else.
package flagset

// Algorithm names what decides which bucket a subject falls into. It is stored beside every decision that must
// be repeatable: another version may place the same subject elsewhere.
const Algorithm = "flagd/fractional/v2 murmur3-x86-32"
