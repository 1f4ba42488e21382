// Package proof provides evidence: which paths are measured, how probes are sent and answered, what their
// results mean, what the user's own signals say, and what a network carries.
//
// Belongs here: path (the list of paths), probe (senders, responders, and the files between agent and
// probers), loss (sent, answered, late, excused and lost probes of a path, and the verdict of a gate), signal
// (the user's own signals and their answers), signal/ask (asks them, once or while a gate measures), bench (a
// benchmark as data: bounds, measurements, results) and load (which carries it out).
//
// Does not belong here: the report of a whole run, which is run/report; the kernel's state on a node, which
// is node.
//
// Door: bench, load, loss, path, probe, signal, signal/ask.
// Hands: load, probe, signal/ask.
// Tests: signal/promtest.
package proof
