package main

import "github.com/chromedp/cdproto/runtime"

// await waits for what an expression promises.
func await(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }
