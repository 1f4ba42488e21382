package labels

import (
	"testing"

	"github.com/theseus-cni/theseus/internal/preflight/check/checktest"
)

func TestRemovedInUse(t *testing.T) { checktest.Run(t, RemovedInUse()) }

func TestNodeNamed(t *testing.T) { checktest.Run(t, NodeNamed()) }
