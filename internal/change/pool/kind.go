package pool

import (
	"fmt"
	"strings"

	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/network/cni"
)

// Kind gives the pods of the network in place another range.
func Kind() kind.Kind {
	return kind.Kind{
		Name:  Name,
		Asked: func(r *kind.Request) bool { return r.Change.Pool != "" },
		Of:    func(p *kind.Plan) bool { return p.Pools != nil },
		Make:  propose,
		Comes: comes,
		Rules: rules,
		Words: kind.Words{Summary: summary, Chapters: map[string]string{"pool": "Change the pool"}},
	}
}

// comes is the same network, with another range.
func comes(r *kind.Request, source *cni.Installation) (*cni.Installation, error) {
	target := *source
	target.PodCIDRs = []string{r.Change.Pool}
	return &target, nil
}

func summary(p *kind.Plan) string {
	text := fmt.Sprintf("Pods of %s from %s (%s) to %s (%s), strategy %s: %s.\n",
		p.Source.Title(), p.From(), strings.Join(p.Source.PodCIDRs, ", "), p.To(),
		strings.Join(p.Target.PodCIDRs, ", "), p.Strategy, p.Reason)
	if p.Pools.Stays {
		text += fmt.Sprintf(
			"%s stays for the addresses of the nodes' tunnels only; pods get no address from it any more.\n", p.From())
	}
	return text
}
