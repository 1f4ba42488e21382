package gitops

import (
	"testing"

	"github.com/theseus-cni/theseus/internal/preflight/check/checktest"
)

func TestOwner(t *testing.T) { checktest.Run(t, Owner()) }
