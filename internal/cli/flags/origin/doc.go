// Package origin evaluates the flags of a plan for every node, and watches their source while the plan is carried
// out.
package origin
