// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Opens the built site in Chromium and checks each page. Run by "make site-test":
//   node test.mjs SITE BASE SHOTS
// SITE is the folder of the built site, BASE its path on the server, and SHOTS the folder
// for screenshots. CHROMIUM is the program, if it is not in the usual place.
import { existsSync, mkdirSync, readdirSync, readFileSync, statSync } from 'node:fs'
import { createServer } from 'node:http'
import { extname, join, relative } from 'node:path'
import { chromium } from 'playwright-core'
import { home, published, root, versions } from './.vitepress/pages.mjs'

const [site, base, shots] = process.argv.slice(2)
const desktop = { width: 1280, height: 800 }
const phone = { width: 390, height: 844 }
const patience = 300_000 // of each wait: a busy machine may be several times slower
const searches = {
  'lanyard-guard-pods': /concepts\/guard/,
  'aws-role-arn': /annotations|clouds\/aws/,
  'workload identity pool': /clouds\/gcp/,
}
const pictured = { '': 'home', 'docs.html': 'docs', 'clouds/aws.html': 'aws', 'concepts/guard.html': 'guard' } // pages for screenshots

let checks = 0
const failures = []
function check(ok, message) {
  checks++
  if (!ok) failures.push(message)
}

// files returns the files below a folder with the ending.
const files = (folder, ending) =>
  readdirSync(folder, { recursive: true }).filter((name) => name.endsWith(ending) && statSync(join(folder, name)).isFile())

const types = { '.html': 'text/html', '.js': 'text/javascript', '.css': 'text/css', '.svg': 'image/svg+xml', '.json': 'application/json' }

// serve serves the folder of the site at its base path, as GitHub Pages does.
function serve() {
  const server = createServer((request, response) => {
    const path = decodeURIComponent(new URL(request.url, 'http://localhost').pathname)
    const file = join(site, path.slice(base.length), path.endsWith('/') ? 'index.html' : '')
    if (!path.startsWith(base) || !existsSync(file) || !statSync(file).isFile()) {
      check(false, `got a request of ${request.url} from ${request.headers.referer}, which does not exist`)
      return response.writeHead(404).end()
    }
    response.writeHead(200, { 'Content-Type': types[extname(file)] ?? 'application/octet-stream' }).end(readFileSync(file))
  })
  return new Promise((resolve) => server.listen(0, 'localhost', () => resolve(server)))
}

// watch reports all errors of a page.
function watch(page, origin) {
  page.setDefaultTimeout(patience)
  const own = (url) => url.startsWith(origin) || /^(data|blob|about):/.test(url)
  page.on('request', (r) => check(own(r.url()), `${page.url()}: got a request of ${r.url()}, want only the site`))
  page.on('response', (r) => check(r.ok(), `${page.url()}: got status ${r.status()} of ${r.url()}`))
  page.on('requestfailed', (r) => {
    const { errorText } = r.failure()
    check(/ABORTED/.test(errorText), `${page.url()}: ${r.url()} failed: ${errorText}`)
  })
  page.on('pageerror', (e) => check(false, `${page.url()}: ${e}`))
  page.on('console', (m) => {
    const slow = /preloaded .* but not used within a few seconds/.test(m.text())
    check(slow || !['error', 'warning'].includes(m.type()), `${page.url()}: the console has: ${m.text()}`)
  })
}

// open opens a page, and waits until its program runs: before, a click on a button is lost.
async function open(page, address) {
  await page.goto(address)
  await page.waitForFunction(() => document.querySelector('#app').__vue_app__)
}

// facts returns the anchors and links of the open page, and by how much it is too wide.
const facts = () => ({
  title: document.querySelector('h1')?.textContent,
  anchors: [...document.querySelectorAll('[id]')].map((e) => e.id),
  links: [...document.querySelectorAll('a[href]')].map((e) => e.href),
  wide: document.documentElement.scrollWidth - innerWidth,
  broken: [...document.images].filter((i) => i.complete && !i.naturalWidth).map((i) => i.src),
})

// visit opens each page at both widths, and then checks the links between them.
async function visit(page, url) {
  const all = new Map()
  for (const name of files(site, '.html').filter((f) => f !== '404.html')) {
    const address = url + name.replace(/(^|\/)index\.html$/, '$1')
    await page.setViewportSize(desktop)
    await open(page, address)
    const found = await page.evaluate(facts)
    await page.setViewportSize(phone)
    const { wide } = await page.evaluate(facts)
    check(found.title, `${name}: got no heading`)
    check(found.wide <= 0 && wide <= 0, `${name}: got ${found.wide} and ${wide} pixels outside of desktop and phone, want 0`)
    check(found.broken.length === 0, `${name}: got no picture ${found.broken}`)
    all.set(address, found)
  }
  const sources = files(join(root, 'docs'), '.md').length + 1 // and README.md
  check(all.size === sources, `got ${all.size} pages, want ${sources}`)
  for (const [address, { links }] of all) {
    for (const link of links.filter((l) => l.startsWith(url))) {
      const [to, anchor] = link.split('#')
      check(all.has(to), `${address}: got no page ${to}`)
      check(!anchor || all.get(to)?.anchors.includes(decodeURIComponent(anchor)), `${address}: got no anchor for ${link}`)
    }
  }
  console.log(`${all.size} pages, ${[...all.values()].flatMap((p) => p.links).length} links`)
}

// front checks the home page: what it is, the buttons, the pictures, and the pod before and
// after, side by side where there is room.
async function front(page, url) {
  const want = home('main')
  const images = [...readFileSync(join(root, 'README.md'), 'utf8').matchAll(/^!\[(.+?)\]/gm)].map(([, alt]) => alt)
  check(images.length >= 4, `got ${images.length} pictures in README.md, want 4`)
  for (const [device, viewport] of Object.entries({ desktop, phone })) {
    await page.setViewportSize(viewport)
    await open(page, url)
    for (const text of [want.name, want.text, want.tagline]) {
      check(await page.locator('.VPHero').getByText(text, { exact: true }).isVisible(), `home, ${device}: got no ${text}`)
    }
    const buttons = await page.locator('.VPHero .action a').evaluateAll((all) => all.map((a) => ({ text: a.textContent.trim(), bottom: a.getBoundingClientRect().bottom })))
    check(`${buttons.map((b) => b.text)}` === `${want.actions.map((a) => a.text)}`, `home, ${device}: got the buttons ${buttons.map((b) => b.text)}`)
    check(buttons.length === 3 && buttons.every((b) => b.bottom <= viewport.height), `home, ${device}: want three buttons that are seen without scrolling`)
    const shown = await page.locator('.VPHome img').evaluateAll((all) => all.filter((i) => i.naturalWidth).map((i) => i.alt))
    check(`${shown}` === `${images}`, `home, ${device}: got the pictures ${shown}, want ${images}`)
    const [before, after] = await page.locator('.sides > div').evaluateAll((all) => all.map((e) => e.getBoundingClientRect().top))
    check(device === 'desktop' ? before === after : before < after, `home, ${device}: got before at ${before} and after at ${after}`)
  }
  for (const { text, link } of want.actions) {
    await open(page, url)
    await page.click(`.VPHero .action a:text-is("${text}")`)
    await page.waitForURL(new RegExp(link.replace(/[.?]/g, '\\$&') + '$'))
  }
}

// search types each query, and opens the best result.
async function search(page, url) {
  await page.setViewportSize(desktop)
  for (const [query, want] of Object.entries(searches)) {
    await open(page, url)
    await page.click('.VPNavBarSearchButton, .DocSearch-Button')
    await page.fill('.search-input', query)
    const results = page.locator('.results .result')
    await results.first().waitFor().catch(() => {})
    const top = await results.evaluateAll((all) => all.slice(0, 5).map((e) => e.getAttribute('href')))
    await page.screenshot({ path: join(shots, `search-${Object.keys(searches).indexOf(query) + 1}.png`) })
    check(top.some((href) => want.test(href)), `search for ${query}: got ${top}, want ${want} among the first five`)
    if (top.length === 0) continue
    await page.keyboard.press('Enter')
    await page.waitForURL((u) => u.pathname === new URL(top[0], url).pathname)
    console.log(`search for ${query}: ${top[0]}`)
  }
}

// schemes opens the site with each colour scheme of the system, and switches by hand.
async function schemes(browser, url) {
  for (const [device, viewport] of Object.entries({ desktop, phone })) {
    for (const scheme of ['light', 'dark']) {
      const context = await browser.newContext({ viewport, colorScheme: scheme, deviceScaleFactor: device === 'phone' ? 2 : 1 })
      const page = await context.newPage()
      watch(page, url)
      for (const [path, name] of Object.entries(pictured)) {
        await open(page, url + path)
        check(await page.evaluate(shade, scheme), `${name}: got another scheme, want ${scheme}`)
        await page.screenshot({ path: join(shots, `${name}-${device}-${scheme}.png`), fullPage: name === 'home' })
      }
      await menus(page, device, scheme)
      await context.close()
    }
  }
}

// menus opens the menu on a phone. Elsewhere, it checks the versions and changes the colour scheme.
async function menus(page, device, scheme) {
  if (device === 'phone') {
    await page.click('.VPLocalNav .menu')
    await page.locator('.VPSidebar .link').first().waitFor()
    await page.waitForTimeout(500) // the animation
    await page.screenshot({ path: join(shots, `menu-${device}-${scheme}.png`) })
    return
  }
  const offered = await page.locator('.VPNavBarMenuGroup a').evaluateAll((all) => all.map((a) => a.href))
  const want = versions().map(published)
  check(`${offered}` === `${want}`, `got the versions ${offered}, want ${want}`)
  await page.locator('.VPSwitchAppearance:visible').first().click()
  const other = scheme === 'dark' ? 'light' : 'dark'
  await page.waitForFunction(shade, other).catch(() => check(false, `got the scheme ${scheme} after the switch`))
  const used = await page.evaluate(() => getComputedStyle(document.querySelector('main')).colorScheme)
  check(used === other, `pictures: got the scheme ${used} after the switch, want ${other}`)
  await page.locator('main img').first().scrollIntoViewIfNeeded()
  await page.screenshot({ path: join(shots, `switched-from-${scheme}.png`) })
}

// shade reports whether the open page is light, or dark, as wanted.
const shade = (want) => (getComputedStyle(document.body).backgroundColor.match(/\d+/g)[0] > 128 ? 'light' : 'dark') === want

// pictures checks that the texts of each picture of docs/ are inside of their boxes, and
// have enough contrast in both schemes.
async function pictures(page) {
  const all = files(join(root, 'docs'), '.svg')
  check(all.length > 0, 'got no picture')
  await page.goto('about:blank')
  for (const name of all) {
    for (const colorScheme of ['light', 'dark']) {
      await page.emulateMedia({ colorScheme })
      await page.setContent(readFileSync(join(root, 'docs', name), 'utf8'))
      for (const wrong of await page.evaluate(unreadable)) check(false, `docs/${name}, ${colorScheme}: ${wrong}`)
      checks++
    }
  }
  console.log(`${all.length} pictures`)
}

// unreadable returns the texts of the picture with too little contrast, or outside of
// their boxes. The box of a text is the last rectangle under its start.
const unreadable = () => {
  const light = (color) => {
    const [r, g, b] = color.match(/\d+/g).map((v) => ((v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    return 0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05
  }
  const boxes = [...document.querySelectorAll('rect')].map((e) => ({ e, at: e.getBBox() }))
  return [...document.querySelectorAll('text')].flatMap((e) => {
    const at = e.getBBox()
    const under = (b) => b.x <= at.x && at.x <= b.x + b.width && b.y <= at.y && at.y <= b.y + b.height
    const box = boxes.findLast((b) => under(b.at) && b.e.compareDocumentPosition(e) & Node.DOCUMENT_POSITION_FOLLOWING)
    if (!box) return [`"${e.textContent}" is in no box`]
    const [a, b] = [e, box.e].map((x) => light(getComputedStyle(x).fill)).sort((x, y) => y - x)
    const wrong = a / b < 4.5 ? [`"${e.textContent}" has a contrast of ${(a / b).toFixed(1)}, want 4.5`] : []
    const spare = Math.min(box.at.x + box.at.width - at.x - at.width, box.at.y + box.at.height - at.y - at.height)
    return spare < 2 ? [...wrong, `"${e.textContent}" ends ${(2 - spare).toFixed()} pixels outside of its box`] : wrong
  })
}

const programs = [process.env.CHROMIUM, '/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome']
const program = programs.find((p) => p && existsSync(p))
if (!program) throw new Error('got no Chromium: install the package chromium, or set CHROMIUM')
mkdirSync(shots, { recursive: true })
const server = await serve()
const url = `http://localhost:${server.address().port}${base}`
const browser = await chromium.launch({
  executablePath: program,
  timeout: patience,
  // Keep Chromium itself from sending requests.
  args: '--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-component-update --disable-sync'.split(' '),
})
const page = await browser.newPage()
watch(page, url)
await visit(page, url)
await front(page, url)
await search(page, url)
await schemes(browser, url)
await pictures(page)
await browser.close()
server.close()

for (const failure of new Set(failures)) console.error(`FAIL ${failure}`)
console.log(`${checks} checks, ${failures.length} failures; screenshots in ${relative(root, shots)}`)
process.exitCode = failures.length ? 1 : 0
