// Package node carries out the agent's verbs (step.Verbs) on the node it runs on; verbs.go lists the work of
// each, and docs/security.md says what it needs. Every verb first reads the state of the node, and changes
// only what differs from its arguments, so each can run again after a crash. Pure functions over the state that was
// read decide what to do (tables.go, scrub.go, joint.go, match.go); the rest reads and writes.
//
// The process must be in the node's own network namespace, as a hostNetwork pod is. Links and routes go
// through netlink; iptables, nft and ipset are programs of the agent's own image, because only they
// write rules that other programs with the same tables can read.
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
