package node

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/theseus-cni/theseus/internal/cluster/outage"
)

// chains knows which chains of iptables and nft exist. All pods of a verb share it, because listing them is
// dear and one list answers for all.
type chains struct {
	n    *Node
	mu   sync.Mutex
	at   time.Time
	list []string
}

// wait waits until there is a chain for every pattern, or alive has an error.
func (c *chains) wait(ctx context.Context, patterns []string, link string, alive func() error) error {
	ctx, cancel := context.WithTimeout(ctx, readyWait)
	defer cancel()
	if len(patterns) == 0 {
		return nil
	}
	missing := ""
	for {
		if err := alive(); err != nil {
			return err
		}
		all, err := c.since(ctx, time.Now())
		if err == nil {
			if missing = lacks(all, patterns, link); missing == "" {
				return nil
			}
		}
		if ctx.Err() != nil {
			return fmt.Errorf("the target's agent has made no chain %s in %s: %w", missing, readyWait, ctx.Err())
		}
		if err != nil {
			return err
		}
		_ = outage.Sleep(ctx, readyPoll)
	}
}

// lacks is the first chain that is missing; "" for none.
func lacks(all, patterns []string, link string) string {
	for _, pattern := range patterns {
		suffix := strings.ReplaceAll(pattern, "{link}", link)
		if !slices.ContainsFunc(all, func(name string) bool { return strings.HasSuffix(name, suffix) }) {
			return suffix
		}
	}
	return ""
}

// since returns a list that was begun after the given time.
func (c *chains) since(ctx context.Context, after time.Time) ([]string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at.After(after) {
		return c.list, nil
	}
	began := time.Now()
	list, err := c.n.chainNames(ctx)
	if err != nil {
		return nil, err
	}
	c.at, c.list = began, list
	return list, nil
}

// chainNames lists the chains of IPv4, those of iptables' older backend too.
func (n *Node) chainNames(ctx context.Context) ([]string, error) {
	text, err := n.Commands.run(ctx, "", "nft", "list", "chains", "ip")
	if err != nil {
		return nil, err
	}
	var all []string
	for line := range strings.Lines(text) {
		if words := strings.Fields(line); len(words) >= 2 && words[0] == "chain" {
			all = append(all, words[1])
		}
	}
	tables, err := n.save(ctx, backend{ip4, "legacy"})
	if err != nil {
		return nil, err
	}
	for _, t := range tables {
		for _, c := range t.chains {
			all = append(all, c.name)
		}
	}
	return all, nil
}
