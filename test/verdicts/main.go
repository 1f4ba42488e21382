// Command verdicts answers for the tests in a lab what internal/network/policy makes of connections.
//
//	verdicts FILE... < questions
//
// The files are what `theseus check --from` takes; the network is the one that they show. The questions are a JSON list
// of {"from": "namespace/pod", "to": "namespace/pod", "protocol": "TCP", "port": 80}, in which an address outside of
// the cluster may be in the place of a pod. The answers are a list of "allow", "deny" and "depends" in their order.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	corev1 "k8s.io/api/core/v1"

	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/network/drivers"
	"github.com/theseus-cni/theseus/internal/network/policy"
)

func main() {
	if err := run(os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(files []string, in io.Reader, out io.Writer) error {
	snapshot, _, err := kube.ReadFiles("verdicts", nil, files...)
	if err != nil {
		return err
	}
	found := drivers.All().Detect(snapshot)
	if len(found) != 1 {
		return errors.New("there is not one network in the input")
	}
	var questions []struct {
		From, To string
		Protocol corev1.Protocol
		Port     int
	}
	if err := json.NewDecoder(io.LimitReader(in, 1<<24)).Decode(&questions); err != nil {
		return err
	}
	profile := policy.ProfileOf(found[0])
	model := policy.Build(snapshot, profile, profile)
	answers := make([]policy.Verdict, len(questions))
	for i, q := range questions {
		if answers[i], err = model.Verdict(policy.After, q.From, q.To,
			policy.Port{Protocol: q.Protocol, Number: q.Port}); err != nil {
			return err
		}
	}
	return json.NewEncoder(out).Encode(answers)
}
