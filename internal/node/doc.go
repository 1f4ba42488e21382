// Package node carries out the agent's verbs (step.Verbs) on the node it runs on; verbs.go lists the work of
// each, and docs/security.md says what it needs. Every verb looks first and changes only what is not yet as
// asked, so each can be run again after any crash. What is to be done is decided by pure functions over what
// was read (tables.go, scrub.go, joint.go, match.go); the rest reads and writes.
//
// The process must be in the node's own network namespace, as a hostNetwork pod is. Links and routes go
// through netlink; iptables, nft and ipset are programs of the agent's own image, because only they write
// what other users of the same tables understand.
//
// Belongs here: the work of every verb on the node itself, agent (the process that takes tasks and
// publishes what probers measured), and introduce (the process that makes pods of one network known to the
// agents of another).
//
// Does not belong here: which verbs there are and what they may name (step), and when they run (change,
// run).
//
// Door: node, agent, introduce.
// Hands: node, agent, introduce.
package node
