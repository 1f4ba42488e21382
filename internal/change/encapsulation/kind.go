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
			"pin": "Send traffic directly between nodes", "encapsulation": "Change the encapsulation",
			"follow": "Return to the network's own routes", "unpin": "Return to the network's own routes",
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
	text := fmt.Sprintf("Traffic of %s between nodes (IPPool %s, %s): from %s to %s, strategy %s: %s.\n",
		p.Source.Title(), p.Encapsulation.Pool, strings.Join(p.Encapsulation.Ranges, ", "), p.From(),
		p.To(), p.Strategy, p.Reason)
	if p.Encapsulation.Reserves != "" {
		text += fmt.Sprintf("The IPReservation %s stays. It keeps former tunnel addresses from pods, because "+
			"connections of nodes may still use them.\n", p.Encapsulation.Reserves)
	}
	return text
}
