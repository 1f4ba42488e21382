package prover

import (
	"context"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/internal/mirror/certs"
)

// Patience is how long a certificate may take to be issued.
const Patience = 10 * time.Minute

// AddNames adds names in two waves: one object of every issuer, then the others. All certificates that cert-manager
// makes for one Ingress or Gateway are in the same wave, because cert-manager gives each of them all names that are
// written there.
func (c *Cluster) AddNames(ctx context.Context, entries []certs.Entry, patience time.Duration,
	note func(string)) (added int, err error) {
	seen, early := map[string]bool{}, map[*unstructured.Unstructured]bool{}
	for _, e := range entries {
		if e.Verdict != certs.Adds || patience == 0 {
			continue
		}
		issuer := e.Issuer
		if strings.HasPrefix(issuer, "Issuer ") { // of a namespace, where a ClusterIssuer is of all
			issuer = e.Certificate.GetNamespace() + " " + issuer
		}
		if !seen[issuer] {
			seen[issuer], early[e.Target] = true, true
		}
	}
	var first, rest []certs.Entry
	for _, e := range entries {
		switch {
		case e.Verdict == certs.Adds && early[e.Target]:
			first = append(first, e)
		case e.Verdict == certs.Adds, e.Verdict == certs.Has:
			rest = append(rest, e)
		}
	}
	for _, wave := range [][]certs.Entry{first, rest} {
		targets := map[*unstructured.Unstructured][]string{}
		var order []*unstructured.Unstructured
		var wanted []Issued
		for _, e := range wave {
			if len(e.Add) > 0 && targets[e.Target] == nil {
				order = append(order, e.Target)
			}
			targets[e.Target] = append(targets[e.Target], e.Add...)
			added += len(e.Add)
			wanted = append(wanted, Issued{Object: e.Certificate, Names: slices.Concat(e.Names, e.Add)})
		}
		var writes []Write
		for _, target := range order {
			writes = append(writes,
				Write{Object: target, Edit: func(now *unstructured.Unstructured) (*certs.Edit, error) {
					return certs.Add(now, targets[target])
				}})
		}
		if err := c.Apply(ctx, writes); err != nil {
			return added, err
		}
		if patience > 0 {
			if err := c.Wait(ctx, wanted, patience, note); err != nil {
				return added, err
			}
		}
	}
	return added, nil
}

// Loss is an object that loses names that were added to it.
type Loss struct {
	Object  string   `json:"object"`
	Names   []string `json:"names"`
	Changed bool     `json:"changedByOthers,omitempty"`
}

// TakeNamesHint is the hint for an error of TakeNames.
const TakeNamesHint = "correct the names by hand, and remove the annotation"

// TakeNames makes the writes that restore the names of every certificate, and returns what they change.
func TakeNames(world certs.World) ([]Loss, []Write, error) {
	rows := []Loss{}
	var writes []Write
	for _, object := range slices.Concat(world.Certificates, world.Routes) {
		edit, err := certs.Back(object)
		if err != nil {
			return nil, nil, err
		}
		if edit == nil {
			continue
		}
		rows = append(rows, Loss{certs.Name(object), edit.Names, edit.Changed})
		writes = append(writes, Write{Object: object, Edit: certs.Back})
	}
	return rows, writes, nil
}
