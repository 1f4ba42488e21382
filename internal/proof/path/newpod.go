package path

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

// NewPod is the network of new pods in the ids of paths, and the value of their label v1alpha1.LabelProbe.
const NewPod = "new-pod"

// tryEvery is the time between two probes of a new pod on a path within the cluster, and tryDenied on one that policy
// denies.
const tryEvery, tryDenied = 100 * time.Millisecond, 250 * time.Millisecond

// TryFor is how long a new pod tries its paths at most.
const TryFor = 30 * time.Second

// Tries are the paths that a new pod on a node tries: those of the node's probe pod on the old network, and those to
// another new pod, if former has an address. Only paths that policy denies to a probe pod are denied to a new pod.
func Tries(paths []v1alpha1.Path, node string, former v1alpha1.Endpoint, ports Ports) []v1alpha1.Path {
	b := builder{}
	denies := false
	for _, one := range paths {
		if one.Source.Node != node || one.Source.Network != Old {
			continue
		}
		one.ID = node + "/" + NewPod + strings.TrimPrefix(one.ID, node+"/"+Old)
		one.Source.Network, one.Second = NewPod, "" // a new pod that is not answered says so, whatever the cause
		switch {
		case one.Denied:
			denies = true
			one.IntervalMillis = int(tryDenied.Milliseconds())
		case one.Class != ClassOutside: // others' servers get no more probes than before
			one.IntervalMillis = int(tryEvery.Milliseconds())
		}
		b.paths = append(b.paths, one)
	}
	if len(b.paths) == 0 || former.Address == "" {
		return b.paths
	}
	source := v1alpha1.Endpoint{Node: node, Network: NewPod}
	former.Network = NewPod
	b.add(ClassPodPod, v1alpha1.UDP, source, at(former, ports.UDP), tryEvery)
	b.add(ClassPodPod, v1alpha1.TCPNew, source, at(former, ports.TCP), tryEvery)
	if denies {
		b.add(ClassDenied, v1alpha1.UDP, source, at(former, ports.Denied), tryDenied)
		b.add(ClassDenied, v1alpha1.TCPNew, source, at(former, ports.Denied), tryDenied)
	}
	return b.paths
}

// Tried is what a new pod found out. Lists name paths by their ids, the first few.
type Tried struct {
	// Paths is how many paths it tried, and Millis how long it took until all of them had the expected result.
	Paths  int   `json:"paths"`
	Millis int64 `json:"millis"`
	// Silent are paths without a reliable answer, and Leaking denied paths with answers.
	Silent  []string `json:"silent,omitempty"`
	Leaking []string `json:"leaking,omitempty"`
	// More counts the paths that the lists leave out.
	More int `json:"more,omitempty"`
}

// maxTried bounds the paths that a Tried names, and maxTriedText its text: the termination message of a container has
// at most 4,096 bytes.
const maxTried, maxTriedText = 3, 4096

// Wrong adds a path without the expected result.
func (t *Tried) Wrong(one v1alpha1.Path) {
	list := &t.Silent
	if one.Denied {
		list = &t.Leaking
	}
	if len(*list) >= maxTried {
		t.More++
		return
	}
	*list = append(*list, one.ID)
}

// Blames are the paths without the expected result, if all of them are named and silent; else none.
func (t *Tried) Blames() []string {
	if len(t.Leaking) > 0 || t.More > 0 {
		return nil
	}
	return t.Silent
}

// Fault says in words which paths do not have the expected result; empty if all have it.
func (t *Tried) Fault() string {
	var parts []string
	if len(t.Silent) > 0 {
		parts = append(parts, "no reliable answer on "+strings.Join(t.Silent, ", "))
	}
	if len(t.Leaking) > 0 {
		parts = append(parts, "answers on paths that policy must block: "+strings.Join(t.Leaking, ", "))
	}
	if t.More > 0 {
		parts = append(parts, fmt.Sprintf("and %d more of %d paths", t.More, t.Paths))
	}
	return strings.Join(parts, "; ")
}

// ParseTried reads the termination message of a new pod.
func ParseTried(text string) (t Tried, err error) {
	if len(text) > maxTriedText {
		return t, fmt.Errorf("the message has %d bytes", len(text))
	}
	if err := json.Unmarshal([]byte(text), &t); err != nil {
		return t, fmt.Errorf("the message is not what a new pod writes: %w", err)
	}
	if t.Paths < 1 || t.Millis < 0 || t.More < 0 || len(t.Silent) > maxTried || len(t.Leaking) > maxTried {
		return Tried{}, fmt.Errorf("the message says nothing about paths")
	}
	return t, nil
}
