// Package piday tests the outage of Pi-Day 2023 on a real cluster: that it happens, that Theseus refuses the
// change before it, and that with Theseus' fix the change costs nothing.
package piday

import (
	"slices"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/lab/internal/network"
	"github.com/theseus-cni/theseus/lab/internal/rigtest"
	"github.com/theseus-cni/theseus/lab/internal/scenario"
)

// bin holds the built programs: `make build` makes them, and this test is of no other.
const bin = "../../../bin"

func TestPiDay(t *testing.T) {
	rigtest.Full(t, "the outage of Pi-Day 2023, and its prevention: four minutes")
	rig := rigtest.Unstarted(t, bin, "piday", 5)
	story, err := scenario.PiDay(t.Context(), rig)
	if err != nil {
		t.Error(err) // and see how far it came
	}
	outage(t, story)
	refusal(t, story)
	upgrade(t, story)
}

// outage demands that every route is lost and requests fail while all of Kubernetes and Calico says that all is well.
func outage(t *testing.T, story *scenario.Story) {
	before, after := story.Healthy, story.Outage
	if before.Routes != 20 || after.Routes != 0 {
		t.Errorf("%d routes before, %d after; want one from each of 5 nodes to each other, and none",
			before.Routes, after.Routes)
	}
	if after.Failed == 0 || after.Sent < 1000 {
		t.Errorf("%d of %d requests failed", after.Failed, after.Sent)
	}
	for what, v := range map[string]scenario.View{"before": before, "after": after} {
		if v.Pods == 0 || v.Running != v.Pods || v.CalicoNodes != 5 || v.CalicoOK != 5 || v.NodesReady != 5 {
			t.Errorf("%s: not all pods are Running, or not all of calico-node and the nodes are Ready: %+v", what, v)
		}
	}
}

// refusal demands that the cause and every node is named.
func refusal(t *testing.T, story *scenario.Story) {
	i := slices.IndexFunc(story.Refused, func(f scenario.Finding) bool {
		return f.ID == "bgp/peer-selector-empty" && f.Severity == "block" && f.Subject.Name == "nodes-to-reflectors"
	})
	if i < 0 {
		t.Fatalf("nothing says that the peering selects nobody: %+v", story.Refused)
	}
	for _, want := range append(slices.Clone(story.Masters), network.MasterLabel) {
		if !strings.Contains(story.Refused[i].Message, want) {
			t.Errorf("%s is not named: %s", want, story.Refused[i].Message)
		}
	}
}

// upgrade demands that after the fix the same change costs nothing.
func upgrade(t *testing.T, story *scenario.Story) {
	if len(story.Commands) == 0 {
		t.Error("no finding gave a fix")
	}
	after := story.Upgrade
	if after.Failed > 0 || after.Intruding > 0 || after.Sent < 1000 {
		t.Errorf("%d of %d requests failed, %d denied ones got through", after.Failed, after.Sent, after.Intruding)
	}
	if after.Routes != story.Healthy.Routes {
		t.Errorf("%d routes, before the day %d", after.Routes, story.Healthy.Routes)
	}
}
