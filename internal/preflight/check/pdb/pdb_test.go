package pdb

import (
	"testing"

	"github.com/theseus-cni/theseus/internal/preflight/check/checktest"
)

func TestBlocks(t *testing.T) { checktest.Run(t, Blocks()) }
