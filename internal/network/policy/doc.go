// Package policy decides connections between pods as a network would, by the policies of a snapshot, and says
// what two networks decide differently.
//
// A Profile is how one network reads policies: which kinds it enforces, in which order, with which known
// deviations, and which addresses it gives to pods. Every kind is turned into one form: tiers of policies, each
// a list of rules of which the first that matches decides. What is not modelled is a Gap, and a rule that rests
// on it may match, so that the verdict is neither allow nor deny but Depends; so is that of an address which is
// not given out yet.
//
// # How it stays near linear in pods
//
// Pods with the same namespace, account and labels (of those that any selector looks at) and named ports are one
// class; a class is cut by address only as far as policies name addresses. Classes that the same policies select
// in one direction are one subject. For each subject the rules' questions about the other end (is it in this
// set, in this range) cut all endpoints into regions, by those whose answer is unusual: the rest is never
// enumerated. Ports are sets of ranges, so all of them are decided at once. A region whose verdicts differ needs
// one pair of pods that shows it, since the other end's policies may hide it; its candidates are again grouped
// by subject. The work is in rules and in the pods that they name, not in pairs.
//
// What grows otherwise: thousands of policies that each select every pod, since each class keeps its list.
//
// Held to an independent implementation by test/cyclonus, and to a naive one on random clusters.
package policy
