// Package rollout has the command `theseus flags rollout`.
package rollout
