// Package proof provides evidence: which paths are measured, how probes are sent and answered, and what their
// results mean.
//
// Belongs here: path (the list of paths), probe (senders, responders, and the files between agent and
// probers), loss (sent, answered, late, excused and lost probes of a path, and the verdict of a gate).
//
// Does not belong here: the report of a whole run, which is run/report; the kernel's state on a node, which
// is node.
//
// Door: loss, path, probe.
// Hands: probe.
package proof
