// The profile out of its compact form; flamegraph.py says how it is laid out.

/** The profile in `text`: base64 of deflated bytes. */
async function decode(text) {
  if (typeof DecompressionStream === "undefined") {
    throw new Error("This browser is too old for this page: it has no DecompressionStream.");
  }
  const characters = atob(text.trim());
  const packed = new Uint8Array(characters.length);
  for (let i = 0; i < packed.length; i++) packed[i] = characters.charCodeAt(i);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const bytes = await new Response(stream).arrayBuffer();

  const headLength = new DataView(bytes).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(new Uint8Array(bytes, 8, headLength)));
  let at = 8 + Math.ceil(headLength / 8) * 8;
  const take = (type, length) => {
    const array = new type(bytes, at, length);
    at += array.byteLength;
    return array;
  };
  const { rows, stacks, sets, newFrames } = head.counts;
  const values = head.types.map(() => take(BigInt64Array, rows));
  return {
    types: head.types,
    defaultType: head.defaultType,
    strings: head.strings,
    frames: head.frames,
    keys: head.keys,
    comments: head.comments,
    columns: values.map(() => null),
    values,
    rowStack: take(Uint32Array, rows),
    rowSet: take(Uint32Array, rows),
    sets,
    setValues: take(Uint32Array, sets * head.keys.length),
    shared: take(Uint32Array, stacks),
    lengths: take(Uint32Array, stacks),
    newFrames: take(Uint32Array, newFrames),
  };
}

/** A column of values as numbers, converted once. */
function columnOf(profile, index) {
  if (!profile.columns[index]) profile.columns[index] = Float64Array.from(profile.values[index], Number);
  return profile.columns[index];
}

/** What is known of a frame. */
function frameOf(profile, index) {
  if (index < 0) return { name: "all", file: "", line: 0, module: "" };
  const [name, file, line, module] = profile.frames[index];
  const { strings } = profile;
  return { name: strings[name], file: strings[file], line, module: strings[module] };
}
