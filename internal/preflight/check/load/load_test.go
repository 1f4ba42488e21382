package load

import (
	"testing"

	"github.com/theseus-cni/theseus/internal/preflight/check/checktest"
)

func TestConntrack(t *testing.T) { checktest.Run(t, Conntrack()) }

func TestDrops(t *testing.T) { checktest.Run(t, Drops()) }

func TestSoftirq(t *testing.T) { checktest.Run(t, Softirq()) }

func TestWeave(t *testing.T) { checktest.Run(t, Weave()) }

func TestFelix(t *testing.T) { checktest.Run(t, Felix()) }
