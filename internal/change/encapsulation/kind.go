package encapsulation

import (
	"fmt"
	"strings"

	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/network/cni"
)

// Kind changes how the network in place carries packets between nodes.
func Kind() kind.Kind {
	return kind.Kind{
		Name:  Name,
		Asked: func(r *kind.Request) bool { return r.Change.Encapsulation != "" },
		Of:    func(p *kind.Plan) bool { return p.Encapsulation != nil },
		Make:  propose,
		Comes: comes,
		Rules: rules,
		Words: kind.Words{Summary: summary, Chapters: map[string]string{
			"pin": "Straight between nodes", "encapsulation": "The encapsulation", "follow": "The network's own routes", "unpin": "The network's own routes",
		}},
	}
}

func comes(r *kind.Request, source *cni.Installation) (*cni.Installation, error) {
	if source.CNI != "calico" {
		return nil, nil
	}
	return encapsulated(r.Snapshot, r.Change, r.Drivers), nil
}

func summary(p *kind.Plan) string {
	text := fmt.Sprintf("Packets of %s between nodes (IPPool %s, %s) from %s to %s, strategy %s: %s.\n", p.Source.CNI, p.Encapsulation.Pool,
		strings.Join(p.Encapsulation.Ranges, ", "), p.From(), p.To(), p.Strategy, p.Reason)
	if p.Encapsulation.Reserves != "" {
		text += fmt.Sprintf("The IPReservation %s stays: it keeps the addresses that the nodes' tunnels had from pods, as connections of nodes may go on with them.\n", p.Encapsulation.Reserves)
	}
	return text
}
