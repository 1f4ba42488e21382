// Package policy evaluates the policies of a snapshot for connections between pods as a network would, and
// finds the differences between two networks.
//
// A Profile describes how one network treats policies: which kinds it enforces, in which order, with which known
// deviations, and which addresses its pods get. All kinds are converted into one form: tiers of policies, each a
// list of rules, of which the first that matches decides. A feature that is not modelled is a Gap: a rule with a
// gap may match, so the verdict is Depends instead of allow or deny. The same applies to an address that is not
// allocated yet.
//
// # Why the work is nearly linear in pods
//
// Pods with the same namespace, service account, relevant labels (those that a selector uses) and named ports are
// one class; a class is divided by address only as far as policies contain addresses. Classes that the same
// policies select in one direction are one subject. For each subject, the rules' questions about the other end (is
// it in this set, in this range) divide all endpoints into regions. Only endpoints with unusual answers are
// enumerated. Ports are sets of ranges, so all ports are evaluated at once. For a region whose verdicts differ, one
// pair of pods must show the difference, because the other end's policies may hide it; the candidates are again
// grouped by subject. So the work depends on the rules and the pods that they name, not on the number of pairs.
//
// The exception: thousands of policies that each select every pod, because each class has a list of its policies.
//
// # Translation
//
// Translate writes Calico's policies as Cilium's. It works on boxes: sets of connections given by conditions on
// labels, so that it is right of pods that come later as well. Judge compares both sets of policies for the pods
// of the snapshot.
//
// test/cyclonus compares this package with an independent implementation; its own tests compare it with a naive
// implementation on random clusters.
package policy
