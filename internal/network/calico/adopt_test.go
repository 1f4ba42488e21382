package calico_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/internal/network/calico"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/network/cnitest"
	"github.com/theseus-cni/theseus/internal/step"
)

// takeover asks for the running pods of the source.
func takeover(t *testing.T) cni.Request {
	r := request(t)
	r.PodCIDR = r.Source.PodCIDRs[0]
	r.Takeover = &cni.Takeover{NodeBits: 24}
	r.Manifest = append(r.Manifest, cnitest.Documents(t, []byte(
		"apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\n"+
			"metadata: {name: ipreservations.crd.projectcalico.org}\n"))...)
	return r
}

// TestTakeoverOfRanges: every range of the source is a pool of its own, which masquerades where the source does, and is
// carried, dropped and opened with the others.
func TestTakeoverOfRanges(t *testing.T) {
	for _, keeps := range []bool{true, false} {
		r := takeover(t)
		r.Source.PodCIDRs = []string{"10.1.0.0/23", "10.1.4.0/24"}
		r.Source.Capabilities.KeepsSources = keeps
		r.PodCIDR = r.Source.PodCIDRs[0]
		target, err := calico.Driver{}.Install(r)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(target.Installation.PodCIDRs, r.Source.PodCIDRs) {
			t.Errorf("its ranges are %v", target.Installation.PodCIDRs)
		}
		a := target.Adoption
		for i, pool := range a.Pools {
			spec := pool.Object["spec"].(map[string]any)
			if spec["cidr"] != r.Source.PodCIDRs[i] || spec["natOutgoing"] == keeps {
				t.Errorf("pool %d is %v", i, pool.Object)
			}
			for _, list := range [][]step.Action{a.Carry, a.Drop, a.Settle} {
				if ref := step.RefOf(&pool); !slices.ContainsFunc(list,
					func(a step.Action) bool { return a.Ref() == ref }) ||
					!slices.Contains(target.Installation.Parts, ref) {
					t.Errorf("%s is left out of %+v", ref, list)
				}
			}
		}
		if len(a.Pools) != 2 {
			t.Errorf("%d pools", len(a.Pools))
		}
	}
}

func TestTakeoverRefuses(t *testing.T) {
	for words, change := range map[string]func(*cni.Request){
		"prefix of 19 bits": func(r *cni.Request) { r.Takeover.NodeBits = 19 },
		"10.1.4.0/25 of flannel is not an IPv4 range": func(r *cni.Request) {
			r.Source.PodCIDRs = []string{"10.1.0.0/23", "10.1.4.0/25"}
		},
		"fd00::/64 of flannel is not an IPv4 range": func(r *cni.Request) {
			r.Source.PodCIDRs = append(r.Source.PodCIDRs, "fd00::/64")
		},
	} {
		r := takeover(t)
		change(&r)
		var refused *cni.Refusal
		if _, err := (calico.Driver{}).Install(r); !errors.As(err, &refused) ||
			!strings.Contains(refused.Message, words) {
			t.Errorf("not refused as %q: %v", words, err)
		}
	}
}

// TestTakeoverKeepsConnections: while pods move, Felix finds another program in the place of conntrack, and that is
// there before its first pod. The user's own form knows nothing of it, and at last it is deleted.
func TestTakeoverKeepsConnections(t *testing.T) {
	r := takeover(t)
	target, err := calico.Driver{}.Install(r)
	if err != nil {
		t.Fatal(err)
	}
	agent := text(t, find(t, target.Objects, "DaemonSet"))
	for _, want := range []string{
		`{"configMap":{"defaultMode":493,"name":"theseus-keep-connections"},"name":"theseus-keep-connections"}`,
		`{"mountPath":"/usr/local/sbin/conntrack","name":"theseus-keep-connections","readOnly":true,"subPath":"conntrack"}`,
	} {
		if !strings.Contains(agent, want) {
			t.Errorf("the agent lacks %s:\n%s", want, agent)
		}
	}
	object := find(t, target.Objects[len(target.Objects)-1:], "ConfigMap")
	if !slices.Equal(target.Discard, []step.Ref{step.RefOf(object)}) ||
		object.GetLabels()["theseus.dev/managed"] != "true" ||
		!strings.HasPrefix(text(t, object.Object["data"]), `{"conntrack":"#!/bin/sh\n`) {
		t.Errorf("%v are deleted, and this was made: %s", target.Discard, text(t, object))
	}
	for _, action := range slices.Concat(target.Final, target.HandOver) {
		if action.Object() != nil && strings.Contains(text(t, action.Object()), "theseus-keep") {
			t.Errorf("the final form still has it: %s", text(t, action.Object()))
		}
	}
}
