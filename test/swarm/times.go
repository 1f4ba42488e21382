package main

import (
	"time"

	"github.com/theseus-cni/theseus/internal/step/estimate"
)

// times says how long a node takes for its work: what the table of internal/step/estimate says of it, as a multiple.
// The table's times are of whole actions, so what any action takes, for its requests to the API server, is taken off:
// those are real here.
type times float64

// usual is the part that the table does not name: what any action takes.
var usual = estimate.Part{Kind: "any", N: 1}.Takes()

func (t times) of(part estimate.Part) time.Duration {
	part.N = 1
	return time.Duration(float64(max(part.Takes()-usual, 0)) * float64(t))
}

// verb is how long an agent works on a verb, which moves so many pods.
func (t times) verb(verb string, pods int) time.Duration {
	return t.of(estimate.Part{Kind: "node/" + verb, Most: pods})
}

// begin is how long a pod takes until it is ready: one of the host's network, as an agent of a network is, one of
// Theseus' own, or any other.
func (t times) begin(own, host bool) time.Duration {
	switch {
	case own:
		return t.of(estimate.Part{Kind: "wait/pod-ready/own"})
	case host:
		return t.of(estimate.Part{Kind: "wait/pod-ready"})
	}
	return t.of(estimate.Part{Kind: "evict", Pods: 1, Chain: 1})
}

// end is how long a pod takes to end: as long as those of the lab that serve on, or less where it is one that agents
// run in.
func (t times) end(own, host bool) time.Duration {
	if own || host {
		return t.of(estimate.Part{Kind: "delete/runs"})
	}
	return t.of(estimate.Part{Kind: "evict", Ended: 1, Ending: 1}) - t.of(estimate.Part{Kind: "evict",
		Pods: 1, Chain: 1})
}
