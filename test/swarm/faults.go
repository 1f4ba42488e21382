package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/theseus-cni/theseus/internal/step"
)

const faultUsage = "NODE=fail:VERB, NODE=slow:VERB:DURATION, NODE=restart:VERB (of its agent), " +
	"NODE=lose:VERB:PERCENT\nor NODE=vanish:VERB (repeatable): what happens when the node is first asked for a verb"

// fault is what goes wrong on a node when it is first asked for a verb.
type fault struct {
	node, kind, verb string
	delay            time.Duration // slow: how much longer the verb takes
	share            float64       // lose: of the packets from and to the node, from then on
	text             string
}

func (f fault) String() string { return f.text }

// faults is a repeatable flag.
type faults []fault

func (f *faults) String() string { return fmt.Sprint([]fault(*f)) }

// Set implements flag.Value.
func (f *faults) Set(text string) error {
	node, rest, _ := strings.Cut(text, "=")
	part := strings.Split(rest, ":")
	one := fault{node: node, kind: part[0], text: text}
	values := map[string]int{"fail": 2, "slow": 3, "restart": 2, "lose": 3, "vanish": 2}
	if node == "" || values[one.kind] != len(part) {
		return fmt.Errorf("%q is none of: %s", text, faultUsage)
	}
	one.verb = part[1]
	if _, known := step.VerbNamed(one.verb); !known {
		return fmt.Errorf("%q: there is no verb %q", text, one.verb)
	}
	var err error
	switch one.kind {
	case "slow":
		one.delay, err = time.ParseDuration(part[2])
	case "lose":
		one.share, err = strconv.ParseFloat(strings.TrimSuffix(part[2], "%"), 64)
		if one.share /= 100; err == nil && (one.share <= 0 || one.share > 1) {
			err = fmt.Errorf("the share is not between 0 and 100 %%")
		}
	}
	if err != nil {
		return fmt.Errorf("%q: %w", text, err)
	}
	*f = append(*f, one)
	return nil
}
