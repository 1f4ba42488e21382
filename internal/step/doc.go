// Package step holds the unit of change: actions as data, the steps that order them, the conditions and
// gates between them, and the residue that a network leaves behind. Nothing here acts.
//
// Belongs here: the vocabulary of plans, and what follows from it alone: adoption (the transaction that
// moves one running pod), estimate (how long steps take). A new verb begins here, in the table of its
// family (Verbs); its work on a node is in node.
//
// Does not belong here: which steps a change needs (change), and carrying them out (run, node, mirror).
//
// Door: step, adoption, estimate.
package step
