package reflectors

import (
	"fmt"

	"github.com/theseus-cni/theseus/internal/change/kind"
)

// Kind moves BGP's route reflectors to other nodes.
func Kind() kind.Kind {
	return kind.Kind{
		Name:    Name,
		Asked:   func(r *kind.Request) bool { return r.Change.Reflectors != "" },
		Of:      func(p *kind.Plan) bool { return p.Reflectors != nil },
		Make:    propose,
		Comes:   kind.Stays,
		Rules:   rules,
		Retains: true,
		Words: kind.Words{Chapters: map[string]string{"bgp": "Reflectors"}, Summary: func(p *kind.Plan) string {
			return fmt.Sprintf("BGP of %s: from %s to %s, strategy %s: %s.\n",
				p.Source.Title(), p.From(), p.To(), p.Strategy, p.Reason)
		}},
	}
}
