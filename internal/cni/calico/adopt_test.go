package calico_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/internal/cni"
	"github.com/theseus-cni/theseus/internal/cni/calico"
	"github.com/theseus-cni/theseus/internal/cni/cnitest"
	"github.com/theseus-cni/theseus/internal/step"
)

// TestTakeoverKeepsConnections: while pods move, Felix finds another program in the place of conntrack, and that is
// there before its first pod. The user's own form knows nothing of it, and at last it is deleted.
func TestTakeoverKeepsConnections(t *testing.T) {
	r := request(t)
	r.PodCIDR = r.Source.PodCIDRs[0]
	r.Takeover = &cni.Takeover{NodeBits: 24}
	r.Manifest = append(r.Manifest, cnitest.Documents(t, []byte(
		"apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: ipreservations.crd.projectcalico.org}\n"))...)
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
	if !slices.Equal(target.Discard, []step.Ref{step.RefOf(object)}) || object.GetLabels()["theseus.dev/managed"] != "true" || !strings.HasPrefix(text(t, object.Object["data"]), `{"conntrack":"#!/bin/sh\n`) {
		t.Errorf("%v are deleted, and this was made: %s", target.Discard, text(t, object))
	}
	for _, action := range slices.Concat(target.Final, target.HandOver) {
		if action.Object != nil && strings.Contains(text(t, action.Object), "theseus-keep") {
			t.Errorf("the final form still has it: %s", text(t, action.Object))
		}
	}
}
