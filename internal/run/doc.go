// Package run executes plans: it carries them out, keeps the journal, takes over runs, and reports. The package itself
// assembles a run from its parts, for a command line and for a process in a cluster alike: the lock, the journal, the
// actor, the gate, the evidence.
//
// Belongs here: Run (the assembly), Prepare (installs the CRDs of its journal), ReportInput (the input of a report),
// View and Script (how a run is shown, and in which words), Cost (what a guard measures, and for how much), engine (the
// deterministic state machine and the interfaces it needs), journal (the record and the lock, in the cluster and on
// disk), nodepool (nodes that commands add and remove), mirrored (the actions of plans with a mirror), guarded (runs
// the command that a plan guards; its result says what the journal then proves), benched (the pods of a benchmark, and
// its results), report (what a change cost), admission (whether a plan may begin), window (when steps may begin),
// propose (a cluster and a change become findings and a plan), changes (makes plans for Changes in the cluster),
// controller (runs approved plans in the cluster), kstatus (conditions for tools that know nothing of Theseus), web
// (the live page of a run, on loopback or for people who sign in), metrics (what a run counts, for Prometheus), notify
// (sends what happens to an HTTP endpoint).
//
// Does not belong here: work on a node (node), calls to the API server (cluster/kube), and judging a path's
// probes (proof/loss).
//
// Door: run, admission, benched, changes, controller, engine, guarded, guarded/result, journal, metrics, mirrored,
// notify, propose, report, web, window.
// Hands: run, admission, benched, changes, controller, guarded, journal, metrics, mirrored, nodepool, notify, web.
// Tests: web/webtest.
package run
